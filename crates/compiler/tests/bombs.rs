//! Modules made to exhaust the compiler.
//!
//! Each is small to write down and large in something whose cost may grow faster than its size: edges, phis, live values,
//! stores in a block, segments. `mote-compile` must accept it or refuse it with one clear line, within [`CPU_SECONDS`] of CPU
//! time and [`MEMORY`], and never end by a signal. What each takes is printed (`--nocapture`).
//!
//! Each bomb has two sizes. `cargo test` runs the light one; the full one is what the limits and budgets in `limits.rs` were set
//! by, and takes several minutes: `cargo test --release -p mote-compiler --test bombs -- --ignored --nocapture`.
//! `MOTE_BOMB=word` runs only the bombs with the word in their name.

#![allow(clippy::unwrap_used, clippy::indexing_slicing)]

#[path = "bombs/module.rs"]
mod module;
#[path = "bombs/process.rs"]
mod process;

use module::{Code, I32, I64, Module, V128};
use process::{Outcome, compile};

/// CPU time of one bomb, over all threads.
const CPU_SECONDS: f64 = 30.0;

/// Peak resident memory, in bytes, with `--max-memory 1G`.
const MEMORY: u64 = 1 << 30;

/// What must become of a module.
#[derive(Clone, Copy)]
enum Expected {
    /// There is an artifact.
    Accepted,
    /// The module is refused, with this text in the message.
    Refused(&'static str),
}
use Expected::{Accepted, Refused};

struct Bomb {
    name: &'static str,
    make: fn(u32) -> Vec<u8>,
    /// The sizes, and what becomes of the module of that size.
    light: (u32, Expected),
    full: (u32, Expected),
}

const fn bomb(
    name: &'static str,
    make: fn(u32) -> Vec<u8>,
    light: (u32, Expected),
    full: (u32, Expected),
) -> Bomb {
    Bomb { name, make, light, full }
}

const BOMBS: &[Bomb] = &[
    bomb("br_tables", br_tables, (100, Accepted), (400, Accepted)),
    bomb("br_table of many targets", huge_br_table, (20_000, Accepted), (100_000, Accepted)),
    bomb("br_table of a million targets", huge_br_table, (200_000, Accepted), (1_000_000, Accepted)),
    bomb("state machine", state_machine, (500, Accepted), (10_000, Accepted)),
    bomb("locals live through branches", locals, (1_000, Accepted), (49_000, Accepted)),
    bomb("locals over the limit", locals, (51_000, Refused("locals")), (51_000, Refused("locals"))),
    bomb("nested blocks", nested_blocks, (2_000, Accepted), (100_000, Accepted)),
    bomb("nested ifs", nested_ifs, (2_000, Accepted), (30_000, Accepted)),
    bomb("nested loops", nested_loops, (200, Accepted), (10_000, Accepted)),
    bomb("loops in a row", loops_in_a_row, (100, Accepted), (10_000, Accepted)),
    bomb("loops that carry sums", vector_loops, (200, Accepted), (5_000, Accepted)),
    bomb("branches over live values", live_values, (1_000, Accepted), (40_000, Accepted)),
    bomb("arithmetic", arithmetic, (20_000, Accepted), (240_000, Accepted)),
    bomb(
        "function of 7 MB",
        arithmetic,
        (1_000_000, Refused("operators of a function")),
        (1_000_000, Refused("operators of a function")),
    ),
    bomb("function over the limit", arithmetic, (1_200_000, Refused("size")), (1_200_000, Refused("size"))),
    bomb("deep stack", deep_stack, (5_000, Accepted), (300_000, Accepted)),
    bomb("selects", selects, (5_000, Accepted), (100_000, Accepted)),
    bomb("block results", block_results, (30, Accepted), (1_000, Accepted)),
    bomb("block results by br_table", block_results_table, (30, Accepted), (1_000, Accepted)),
    bomb("thousand parameters", many_params, (2, Accepted), (48, Accepted)),
    bomb(
        "too many parameters",
        many_params,
        (60, Refused("values that calls pass")),
        (1_000, Refused("values that calls pass")),
    ),
    bomb("calls", calls, (5_000, Accepted), (100_000, Accepted)),
    bomb("indirect calls", indirect_calls, (2_000, Accepted), (25_000, Accepted)),
    bomb(
        "too many indirect calls",
        indirect_calls,
        (50_000, Refused("operators")),
        (500_000, Refused("operators")),
    ),
    bomb("calls that double", doubling_calls, (1_000, Accepted), (20_000, Accepted)),
    bomb("tiny functions", tiny_functions, (5_000, Accepted), (400_000, Accepted)),
    bomb(
        "too many functions",
        tiny_functions,
        (1_000_000, Refused("functions")),
        (1_000_000, Refused("functions")),
    ),
    bomb("alternating stores", alternating_stores, (5_000, Accepted), (100_000, Accepted)),
    bomb("alternating stores, optimised", alternating_stores, (2_000, Accepted), (25_000, Accepted)),
    bomb("loads of one base", loads, (5_000, Accepted), (60_000, Accepted)),
    bomb("loads of running addresses", chased_loads, (5_000, Accepted), (60_000, Accepted)),
    bomb("sums of products", products, (1_000, Accepted), (70_000, Accepted)),
    bomb("wide products", wide_products, (2_000, Accepted), (50_000, Accepted)),
    bomb("vectors", vectors, (5_000, Accepted), (100_000, Accepted)),
    bomb("memory copies", copies, (1_000, Accepted), (50_000, Accepted)),
    bomb("divisions", divisions, (2_000, Accepted), (50_000, Accepted)),
    bomb("conversions", conversions, (2_000, Accepted), (100_000, Accepted)),
    bomb("nested try_tables", nested_tries, (200, Accepted), (20_000, Accepted)),
    bomb("calls in a try_table", calls_in_try, (1_000, Accepted), (50_000, Accepted)),
    bomb("spread data segments", data_segments, (20_000, Accepted), (100_000, Accepted)),
    bomb("memory of 2^48 pages", huge_memory, (1, Accepted), (1, Accepted)),
    bomb("element segments", element_segments, (10_000, Accepted), (100_000, Accepted)),
    bomb("elements", elements, (100_000, Accepted), (5_000_000, Accepted)),
    bomb("exports", exports, (20_000, Accepted), (1_000_000, Refused("effective type size"))),
    bomb("imports", imports, (20_000, Accepted), (100_000, Accepted)),
    bomb("imports over the limit", imports, (200_000, Refused("imports")), (200_000, Refused("imports"))),
    bomb("globals", globals, (20_000, Accepted), (1_000_000, Accepted)),
    bomb("types", types, (500, Accepted), (50_000, Accepted)),
    bomb("long names", names, (2_000, Accepted), (90_000, Accepted)),
    bomb(
        "text of nested parentheses",
        nested_text,
        (100_000, Refused("text")),
        (10_000_000, Refused("text")),
    ),
];

#[test]
fn light_bombs_are_accepted_or_refused_within_bounds() {
    run_all(|bomb| bomb.light);
}

#[test]
#[ignore = "takes minutes; see the head of this file"]
fn full_bombs_are_accepted_or_refused_within_bounds() {
    run_all(|bomb| bomb.full);
}

/// A program that is no bomb, cut short and with bits flipped: accepted (a cut between sections, a flipped constant) or refused.
#[test]
fn damaged_modules_are_accepted_or_refused() {
    let whole = wat::parse_str(include_str!("bombs/hello.wat")).unwrap();
    let intact = compile(&whole, &["--opt-level", "0"]);
    assert_eq!(intact.status, 0, "{}", intact.message);
    let cuts = (0..50).map(|part| whole[..whole.len() * part / 50].to_vec());
    let flips = (0..100).map(|part| {
        let mut flipped = whole.clone();
        flipped[whole.len() * part / 100] ^= 1 << (part % 8);
        flipped
    });
    let mut refused = 0;
    for (at, damaged) in cuts.chain(flips).enumerate() {
        let found = compile(&damaged, &["--opt-level", "0"]);
        assert_eq!(found.misbehaviour(), None, "variant {at}");
        refused += found.status;
    }
    assert!(refused > 50, "{refused} refused");
}

fn run_all(size: fn(&Bomb) -> (u32, Expected)) {
    let only = std::env::var("MOTE_BOMB").unwrap_or_default();
    let mut wrong = Vec::new();
    println!("{:30} {:>9} {:>9} {:>6} {:>8}  result", "bomb", "size", "bytes", "CPU s", "peak MB");
    for bomb in BOMBS.iter().filter(|bomb| bomb.name.contains(&only)) {
        let (size, expected) = size(bomb);
        let wasm = (bomb.make)(size);
        let found = compile(&wasm, &[]);
        println!(
            "{:30} {size:9} {:9} {:6.1} {:8}  {}",
            bomb.name,
            wasm.len(),
            found.cpu_seconds,
            found.peak_bytes >> 20,
            found.summary()
        );
        wrong.extend(fault(&found, expected).map(|fault| format!("{} of {size}: {fault}", bomb.name)));
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

fn fault(found: &Outcome, expected: Expected) -> Option<String> {
    if let Some(fault) = found.misbehaviour() {
        return Some(fault);
    }
    let as_expected = match expected {
        Accepted => found.status == 0,
        Refused(text) => found.status == 1 && found.message.contains(text),
    };
    if !as_expected {
        return Some(format!("unexpected result: {}", found.summary()));
    }
    if found.cpu_seconds > CPU_SECONDS {
        return Some(format!("{:.1} s of CPU time", found.cpu_seconds));
    }
    (found.peak_bytes > MEMORY).then(|| format!("{} MB", found.peak_bytes >> 20))
}

// Control flow.

/// `n` br_tables of 400 targets each, in a loop, so that every target has many predecessors.
fn br_tables(n: u32) -> Vec<u8> {
    let mut code = Code::new(&[(2, I32)]);
    code.loop_(None);
    for _ in 0..400 {
        code.block(None);
    }
    for table in 0..n {
        code.block(None);
        code.get(0).i32(table).op(0x6a).set(0);
        let targets: Vec<u32> = (0..400).map(|target| (target * 7 + table) % 401).collect();
        code.get(0).br_table(&targets, 0);
        code.end();
        code.get(1).i32(1).op(0x6a).set(1);
    }
    for _ in 0..401 {
        code.end();
    }
    Module::of_function(&[I32], &[], code)
}

fn huge_br_table(n: u32) -> Vec<u8> {
    let mut code = Code::new(&[]);
    for _ in 0..200 {
        code.block(None);
    }
    let targets: Vec<u32> = (0..n).map(|target| target.wrapping_mul(2_654_435_761) % 200).collect();
    code.get(0).br_table(&targets, 0);
    for block in 0..200 {
        code.end();
        code.i32(block).i32(block).store32(0);
    }
    Module::of_function(&[I32], &[], code)
}

/// A loop around a br_table with `n` states, each of which sets the next one: no structure but the table.
fn state_machine(n: u32) -> Vec<u8> {
    let mut code = Code::new(&[(8, I32)]);
    code.loop_(None);
    for _ in 0..=n {
        code.block(None);
    }
    let targets: Vec<u32> = (0..n).collect();
    code.get(0).br_table(&targets, n);
    for state in 0..n {
        code.end();
        let (from, to) = (1 + state % 8, 1 + (state * 5 + 3) % 8);
        code.get(from).get(to).op(0x6a).load32(state).set(to);
        code.get(to).i32(state).op(0x73).set(0);
        code.br(n - state);
    }
    code.end().end();
    Module::of_function(&[I32], &[], code)
}

/// Every local is written on one side of a branch and read in the end.
fn locals(n: u32) -> Vec<u8> {
    let mut code = Code::new(&[(n, I32)]);
    code.loop_(None);
    for local in 1..=n {
        code.block(None);
        code.get(0).i32(local).op(0x46).br_if(0);
        code.get(0).get(local / 2 + 1).op(0x6a).set(local);
        code.end();
    }
    code.get(n).br_if(0).end();
    for local in 1..=n {
        code.i32(local).get(local).store32(0);
    }
    Module::of_function(&[I32], &[], code)
}

fn nested_blocks(n: u32) -> Vec<u8> {
    let mut code = Code::new(&[]);
    for _ in 0..n {
        code.block(None);
    }
    for depth in 0..n {
        code.get(0).i32(depth).op(0x46).br_if(depth % 100.min(n - depth)).end();
    }
    Module::of_function(&[I32], &[], code)
}

fn nested_ifs(n: u32) -> Vec<u8> {
    let mut code = Code::new(&[(1, I32)]);
    for depth in 0..n {
        code.get(0).i32(depth).op(0x73).load32(0).if_(None);
    }
    for depth in 0..n {
        code.get(1).i32(depth).op(0x6a).set(1).else_().get(1).i32(depth).op(0x6c).set(1).end();
    }
    code.i32(0).get(1).store32(0);
    Module::of_function(&[I32], &[], code)
}

fn nested_loops(n: u32) -> Vec<u8> {
    let mut code = Code::new(&[(4, I32)]);
    for _ in 0..n {
        code.loop_(None);
    }
    for depth in 0..n {
        let local = 1 + depth % 4;
        code.get(local).get(0).op(0x6a).set(local).get(local).i32(depth).op(0x48).br_if(0).end();
    }
    code.i32(0).get(1).store32(0);
    Module::of_function(&[I32], &[], code)
}

fn loops_in_a_row(n: u32) -> Vec<u8> {
    let mut code = Code::new(&[(2, I32)]);
    for at in 0..n {
        code.i32(0).set(1).loop_(None);
        code.get(0).get(1).op(0x6a).get(2).op(0x3a).memarg(0, at);
        code.get(1).i32(1).op(0x6a).tee(1).i32(at % 100 + 1).op(0x48).br_if(0).end();
    }
    Module::of_function(&[I32], &[], code)
}

/// Loops that the vectoriser takes: sums and element-wise products over arrays.
fn vector_loops(n: u32) -> Vec<u8> {
    let mut code = Code::new(&[(3, I32)]);
    for at in 0..n {
        code.i32(0).set(1).loop_(None);
        code.get(0).get(1).i32(2).op(0x74).op(0x6a);
        code.get(0).get(1).i32(2).op(0x74).op(0x6a).load32(at * 4 + 8);
        code.get(0).get(1).i32(2).op(0x74).op(0x6a).load32(4096).op(0x6c).store32(0);
        code.get(1).i32(1).op(0x6a).tee(1).get(2).op(0x49).br_if(0).end();
        code.get(2).i32(1).op(0x6a).set(2);
    }
    Module::of_function(&[I32], &[], code)
}

/// 200 values that live through `n` branches.
fn live_values(n: u32) -> Vec<u8> {
    let mut code = Code::new(&[(200, I32)]);
    for local in 1..=200 {
        code.get(0).load32(local * 4).set(local);
    }
    for at in 0..n {
        let local = 1 + at % 200;
        code.block(None).get(0).load32(at).br_if(0);
        code.get(local).get(1 + (at * 31 + 7) % 200).op(0x6c).set(local).end();
    }
    for local in 1..=200 {
        code.i32(local).get(local).store32(0);
    }
    Module::of_function(&[I32], &[], code)
}

// Values.

/// `n` steps of seven bytes each.
fn arithmetic(n: u32) -> Vec<u8> {
    let ops = [0x6a, 0x73, 0x6c, 0x6b, 0x77];
    let mut code = Code::new(&[(3, I32)]);
    code.get(0).set(1);
    for at in 0..n {
        code.get(1 + at % 3).get((at + 2) % 4).op(ops[at as usize % ops.len()]).set(1 + (at + 1) % 3);
    }
    code.i32(0).get(1).store32(0).i32(4).get(2).store32(0).i32(8).get(3).store32(0);
    Module::of_function(&[I32], &[], code)
}

/// `n` operands before the first operator.
fn deep_stack(n: u32) -> Vec<u8> {
    let mut code = Code::new(&[]);
    for at in 0..n {
        code.get(0).load32(at);
    }
    for at in 1..n {
        code.op(if at % 2 == 0 { 0x6b } else { 0x73 });
    }
    code.drop();
    Module::of_function(&[I32], &[], code)
}

fn selects(n: u32) -> Vec<u8> {
    let mut code = Code::new(&[(2, I32)]);
    for at in 0..n {
        code.get(1).get(2).get(0).get(1).op(0x73).i32(at).op(0x4b).op(0x1b).set(1 + at % 2);
    }
    code.i32(0).get(1).store32(0);
    Module::of_function(&[I32], &[], code)
}

/// `n` nested blocks of 1000 results, with a branch to each.
fn block_results(n: u32) -> Vec<u8> {
    let mut module = Module::new();
    let wide = module.ty(&[I32; 1000], &[I32; 1000]);
    let mut code = Code::new(&[]);
    for local in 0..1000 {
        code.get(0).i32(local).op(0x6a);
    }
    for _ in 0..n {
        code.block(Some(wide));
        code.get(0).br_if(0);
    }
    for _ in 0..n {
        code.get(0).op(0x6a).end();
    }
    for _ in 0..1000 {
        code.drop();
    }
    let main = module.ty(&[I32], &[]);
    module.function(main, code);
    module.finish()
}

/// One br_table to `n` blocks of 1000 results each.
fn block_results_table(n: u32) -> Vec<u8> {
    let mut module = Module::new();
    let wide = module.ty(&[], &[I32; 1000]);
    let main = module.ty(&[I32], &[]);
    let mut code = Code::new(&[]);
    for _ in 0..n {
        code.block(Some(wide));
    }
    for at in 0..1000 {
        code.get(0).i32(at).op(0x6a);
    }
    let targets: Vec<u32> = (0..n).collect();
    code.get(0).br_table(&targets, 0);
    for _ in 0..n {
        code.end();
    }
    for _ in 0..1000 {
        code.drop();
    }
    module.function(main, code);
    module.finish()
}

/// `n` functions with 1000 parameters and results, each calling the next.
fn many_params(n: u32) -> Vec<u8> {
    let mut module = Module::new();
    let wide = module.ty(&[I64; 1000], &[I64; 1000]);
    for at in 0..n {
        let mut code = Code::new(&[]);
        for param in 0..1000 {
            code.get((param * 7 + at) % 1000);
        }
        if at + 1 < n {
            code.call(at + 1);
        }
        module.function(wide, code);
    }
    module.finish()
}

// Calls.

fn calls(n: u32) -> Vec<u8> {
    let mut module = Module::new();
    let ty = module.ty(&[I32], &[I32]);
    let mut code = Code::new(&[]);
    code.get(0);
    for at in 0..n {
        code.call(u32::from(at % 3 == 0));
    }
    module.function(ty, code);
    let mut other = Code::new(&[]);
    other.get(0).load32(0).call(0);
    module.function(ty, other);
    module.finish()
}

fn indirect_calls(n: u32) -> Vec<u8> {
    let mut module = Module::new();
    let ty = module.ty(&[I32], &[I32]);
    module.table(100);
    let mut code = Code::new(&[]);
    code.get(0);
    for _ in 0..n {
        code.get(0).op(0x11).u32(ty).u32(0);
    }
    module.function(ty, code);
    module.finish()
}

/// Each function calls the next one twice: inlined all the way it would be 2^n.
fn doubling_calls(n: u32) -> Vec<u8> {
    let mut module = Module::new();
    let ty = module.ty(&[I32], &[I32]);
    for at in 0..n {
        let mut code = Code::new(&[]);
        code.get(0);
        if at + 1 < n {
            code.i32(at).op(0x6a).call(at + 1).get(0).call(at + 1).op(0x6c);
        }
        module.function(ty, code);
    }
    module.finish()
}

fn tiny_functions(n: u32) -> Vec<u8> {
    let mut module = Module::new();
    let ty = module.ty(&[], &[]);
    for _ in 0..n {
        module.function(ty, Code::new(&[]));
    }
    module.finish()
}

// Memory.

fn alternating_stores(n: u32) -> Vec<u8> {
    let mut code = Code::new(&[(1, I32)]);
    for at in 0..n {
        code.get(at % 2).get(0).store32((at / 2) % 5000 * 4);
    }
    Module::of_function(&[I32], &[], code)
}

fn loads(n: u32) -> Vec<u8> {
    let mut code = Code::new(&[(1, I32)]);
    for at in 0..n {
        code.get(0).load32(at * 4).get(1).op(0x6a).set(1);
    }
    code.i32(0).get(1).store32(0);
    Module::of_function(&[I32], &[], code)
}

/// Each load's address is the value before it, plus a sum of what clang writes for array indices.
fn chased_loads(n: u32) -> Vec<u8> {
    let mut code = Code::new(&[(1, I32)]);
    for at in 0..n {
        code.get(0).get(1).i32(2).op(0x74).op(0x6a).load32(at % 64 * 4).get(0).i32(4).op(0x6a).set(0).set(1);
    }
    code.i32(0).get(1).store32(0);
    Module::of_function(&[I32], &[], code)
}

/// One sum of `n` products of sign-extended 32-bit loads.
fn products(n: u32) -> Vec<u8> {
    let mut code = Code::new(&[(1, I64)]);
    for at in 0..n {
        code.get(0).load_i64_32s(at % 10 * 4).get(0).load_i64_32s((at * 7 + 3) % 40 * 4).op(0x7e);
        code.get(1).op(0x7c).set(1);
    }
    code.i32(0).get(1).op(0x37).memarg(0, 0);
    Module::of_function(&[I32], &[], code)
}

fn wide_products(n: u32) -> Vec<u8> {
    let mut code = Code::new(&[(2, I64)]);
    for at in 0..n {
        code.get(0).op(0x29).memarg(0, at * 8).get(1).op(0xfc).u32(0x16);
        code.get(1).get(2).op(0xfc).u32(0x13).set(2).set(1);
    }
    code.i32(0).get(1).op(0x37).memarg(0, 0);
    Module::of_function(&[I32], &[], code)
}

/// Vector operators that have no single instruction.
fn vectors(n: u32) -> Vec<u8> {
    let mut code = Code::new(&[(2, V128)]);
    code.get(0).op(0xfd).u32(0x0f).set(1);
    for at in 0..n {
        let op = [0xd5, 0x62, 0x6e, 0x6b, 0x5f, 0x94, 0x7c][at as usize % 7];
        code.get(1 + at % 2);
        match op {
            // i64x2.mul and i8x16.add take two operands.
            0xd5 | 0x6e => code.get(2 - at % 2).op(0xfd).u32(op),
            // i8x16.shl takes an i32.
            0x6b => code.get(0).op(0xfd).u32(op),
            _ => code.op(0xfd).u32(op),
        };
        code.set(1 + (at + 1) % 2);
    }
    code.i32(0).get(1).op(0xfd).u32(11).memarg(0, 0);
    Module::of_function(&[I32], &[], code)
}

fn copies(n: u32) -> Vec<u8> {
    let mut code = Code::new(&[]);
    for at in 0..n {
        code.get(0).i32(at).get(0);
        if at % 2 == 0 {
            code.op(0xfc).u32(10).u32(0).u32(0);
        } else {
            code.op(0xfc).u32(11).u32(0);
        }
    }
    Module::of_function(&[I32], &[], code)
}

fn divisions(n: u32) -> Vec<u8> {
    let mut code = Code::new(&[(1, I32)]);
    for at in 0..n {
        code.get(0).get(1).op([0x6d, 0x6e, 0x6f, 0x70][at as usize % 4]).set(1);
    }
    code.i32(0).get(1).store32(0);
    Module::of_function(&[I32], &[], code)
}

fn conversions(n: u32) -> Vec<u8> {
    let mut code = Code::new(&[(1, I32)]);
    for at in 0..n {
        // f64.convert_i32_s or _u, i32.trunc_f64_s or _u
        code.get(1).op(0xb7 + at as u8 % 2).op(0x9f).op(0xaa + at as u8 % 2).set(1);
    }
    code.i32(0).get(1).store32(0);
    Module::of_function(&[I32], &[], code)
}

// Exceptions.

fn nested_tries(n: u32) -> Vec<u8> {
    let mut module = Module::new();
    let ty = module.ty(&[], &[]);
    module.tag(ty);
    let mut code = Code::new(&[]);
    for _ in 0..n {
        code.block(None).try_table(0, 0);
    }
    code.call(1);
    for _ in 0..n {
        code.end().end().call(1);
    }
    module.function(ty, code);
    let mut throws = Code::new(&[]);
    throws.op(0x08).u32(0);
    module.function(ty, throws);
    module.finish()
}

fn calls_in_try(n: u32) -> Vec<u8> {
    let mut module = Module::new();
    let ty = module.ty(&[], &[]);
    module.tag(ty);
    let mut code = Code::new(&[(1, I32)]);
    code.block(None).try_table(0, 0);
    for at in 0..n {
        code.call(1).i32(at).set(0);
    }
    code.end().end().i32(0).get(0).store32(0);
    module.function(ty, code);
    let mut throws = Code::new(&[]);
    throws.op(0x08).u32(0);
    module.function(ty, throws);
    module.finish()
}

// Sections.

fn data_segments(n: u32) -> Vec<u8> {
    let mut module = Module::new();
    module.memory_pages = 65_536;
    for at in 0..n {
        module.data(at * (u32::MAX / n), b"x");
    }
    module.finish()
}

fn huge_memory(_: u32) -> Vec<u8> {
    let mut module = Module::new();
    module.wide_memory(1 << 48);
    module.finish()
}

fn element_segments(n: u32) -> Vec<u8> {
    let mut module = Module::new();
    let ty = module.ty(&[], &[]);
    module.function(ty, Code::new(&[]));
    module.table(n);
    for at in 0..n {
        module.element(at, &[0]);
    }
    module.finish()
}

fn elements(n: u32) -> Vec<u8> {
    let mut module = Module::new();
    let ty = module.ty(&[], &[]);
    module.function(ty, Code::new(&[]));
    module.table(n);
    module.element(0, &vec![0; n as usize]);
    module.finish()
}

fn exports(n: u32) -> Vec<u8> {
    let mut module = Module::new();
    let ty = module.ty(&[], &[]);
    module.function(ty, Code::new(&[]));
    for at in 0..n {
        module.export(&format!("e{at}"), 0);
    }
    module.finish()
}

fn imports(n: u32) -> Vec<u8> {
    let mut module = Module::new();
    let ty = module.ty(&[I32], &[I32]);
    for at in 0..n {
        module.import(&format!("i{at}"), ty);
    }
    module.finish()
}

fn globals(n: u32) -> Vec<u8> {
    let mut module = Module::new();
    for at in 0..n {
        module.global(at);
    }
    module.finish()
}

/// `n` types of seventeen parameters, all different, each the type of a function.
fn types(n: u32) -> Vec<u8> {
    let mut module = Module::new();
    for at in 0..n {
        let params: Vec<u8> = (0..17).map(|bit| if at >> bit & 1 == 0 { I32 } else { I64 }).collect();
        let ty = module.ty(&params, &[]);
        module.function(ty, Code::new(&[]));
    }
    module.finish()
}

/// A thousand functions whose names are `n` bytes long, and as many names for functions that are not there.
fn names(n: u32) -> Vec<u8> {
    let mut module = Module::new();
    let ty = module.ty(&[], &[]);
    for _ in 0..1000 {
        module.function(ty, Code::new(&[]));
    }
    let name = "n".repeat(n as usize);
    for at in 0..2000 {
        module.name(at, &name);
    }
    module.finish()
}

fn nested_text(n: u32) -> Vec<u8> {
    format!("(module (func {}", "(block ".repeat(n as usize / 7)).into_bytes()
}
