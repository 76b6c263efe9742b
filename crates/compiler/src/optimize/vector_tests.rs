//! Copies taken as one memcpy, and rotations four at a time, run beside their O0 build.

use std::fmt::Write;

use super::address_tests::{agree, edges};

/// The head of a function that is given addresses: `%gp` and `%gq` point to what `%p` and `%q` address.
const POINTERS: &str = "
    %zp = zext i32 %p to i64
    %gp = getelementptr i8, ptr %ctx, i64 %zp
    %zq = zext i32 %q to i64
    %gq = getelementptr i8, ptr %ctx, i64 %zq
";

/// A copy of `%n` bytes from `%q` to `%p` in words of 64 bits, as a C library for wasm has it: the length counts down while it is above 15.
fn block_copy(offsets: &[u32]) -> String {
    let mut body = String::new();
    for offset in offsets {
        let _ = write!(
            body,
            "%f{offset} = getelementptr i8, ptr %from, i64 {offset}
             %v{offset} = load i64, ptr %f{offset}, align 1, !tbaa !2
             call void @mote.witness.i64(i64 %v{offset})
             %t{offset} = getelementptr i8, ptr %to, i64 {offset}
             store i64 %v{offset}, ptr %t{offset}, align 1, !tbaa !2\n"
        );
    }
    format!(
        "define i32 @f(ptr %ctx, i32 %p, i32 %q, i32 %n) {{
         entry:
           br label %l
         l:
           %d = phi i32 [ %p, %entry ], [ %d1, %l ]
           %s = phi i32 [ %q, %entry ], [ %s1, %l ]
           %c = phi i32 [ %n, %entry ], [ %c1, %l ]
           %zd = zext i32 %d to i64
           %to = getelementptr i8, ptr %ctx, i64 %zd
           %zs = zext i32 %s to i64
           %from = getelementptr i8, ptr %ctx, i64 %zs
           {body}
           %d1 = add i32 %d, 32
           %s1 = add i32 %s, 32
           %c1 = add i32 %c, -32
           %more = icmp ugt i32 %c1, 15
           br i1 %more, label %l, label %e
         e:
           %x = mul i32 %d1, 31
           %y = xor i32 %x, %s1
           %r = add i32 %y, %c1
           ret i32 %r
         }}"
    )
}

/// Where the two ranges lie apart, touch, overlap either way, and wrap; lengths below and above what is worth a call.
fn copies() -> Vec<(u32, u32, u32)> {
    let mut cases = Vec::new();
    for length in [32, 47, 96, 128, 143, 256, 1024, 4096] {
        for (p, q, _) in edges() {
            // A block does not reach across the end of the memory: that is a trap.
            cases.push((p & !31, q & !31, length));
        }
        for distance in [1, 8, 31, 32, 33, 127, 128, 1023, 1024, 1025] {
            cases.push((2000, 2000 + distance, length));
            cases.push((2000 + distance, 2000, length));
        }
    }
    cases
}

#[test]
fn a_block_in_each_iteration_is_one_copy() {
    // The fallback has its addresses widened as well, or not: its count is beyond LLVM.
    agree(&block_copy(&[0, 8, 16, 24]), &copies(), 0, "llvm.memcpy");
    agree(&block_copy(&[24, 0, 16, 8]), &copies(), 0, "llvm.memcpy");
}

#[test]
fn a_block_with_a_gap_is_not_copied_whole() {
    let gap = super::tests::optimized_text(&block_copy(&[0, 8, 24]));
    assert!(!gap.contains("memcpy"), "{gap}");
}

type Quarter = fn(&mut Rounds, [usize; 4]);

/// A function that loads 16 words from `%p`, mixes them in `%n` double rounds and stores them to `%q`.
struct Rounds {
    text: String,
    words: Vec<String>,
    bits: u32,
    next: usize,
}

impl Rounds {
    fn emit(&mut self, operation: &str) -> String {
        self.next += 1;
        let name = format!("%x{}", self.next);
        let _ = writeln!(self.text, "{name} = {operation}");
        name
    }

    fn binary(&mut self, operation: &str, a: usize, b: usize) -> String {
        let bits = self.bits;
        let (a, b) = (self.words[a].clone(), self.words[b].clone());
        self.emit(&format!("{operation} i{bits} {a}, {b}"))
    }

    fn rotate(&mut self, value: &str, distance: u32) -> String {
        let bits = self.bits;
        self.emit(&format!(
            "call i{bits} @llvm.fshl.i{bits}(i{bits} {value}, i{bits} {value}, i{bits} {distance})"
        ))
    }

    fn function(bits: u32, quarter: Quarter, squares: [[[usize; 4]; 4]; 2], in_loop: bool) -> String {
        let mut rounds = Self { text: String::new(), words: Vec::new(), bits, next: 0 };
        let bytes = bits / 8;
        let _ = write!(
            rounds.text,
            "declare i{bits} @llvm.fshl.i{bits}(i{bits}, i{bits}, i{bits})
             define i32 @f(ptr %ctx, i32 %p, i32 %q, i32 %n) {{
             entry:\n{POINTERS}"
        );
        for word in 0..16 {
            let _ = write!(
                rounds.text,
                "%a{word} = getelementptr i8, ptr %gp, i64 {}
                 %w{word} = load i{bits}, ptr %a{word}, align 1, !tbaa !2
                 call void @mote.witness.i{bits}(i{bits} %w{word})\n",
                word * bytes
            );
        }
        let loop_phis = rounds.text.len();
        if in_loop {
            rounds.words = (0..16).map(|word| format!("%l{word}")).collect();
        } else {
            rounds.words = (0..16).map(|word| format!("%w{word}")).collect();
        }
        for square in squares {
            for words in square {
                quarter(&mut rounds, words);
            }
        }
        if in_loop {
            let mut phis = String::from("br label %l\nl:\n%i = phi i32 [ 0, %entry ], [ %j, %l ]\n");
            for word in 0..16 {
                let _ = writeln!(
                    phis,
                    "%l{word} = phi i{bits} [ %w{word}, %entry ], [ {}, %l ]",
                    rounds.words[word]
                );
            }
            rounds.text.insert_str(loop_phis, &phis);
            rounds
                .text
                .push_str("%j = add i32 %i, 1\n%d = icmp ult i32 %j, %n\nbr i1 %d, label %l, label %e\ne:\n");
        }
        for word in 0..16 {
            let _ = write!(
                rounds.text,
                "%b{word} = getelementptr i8, ptr %gq, i64 {}
                 store i{bits} {}, ptr %b{word}, align 1, !tbaa !2\n",
                word * bytes as usize,
                rounds.words[word]
            );
        }
        rounds.text.push_str("ret i32 0\n}");
        rounds.text
    }
}

const COLUMNS: [[usize; 4]; 4] = [[0, 4, 8, 12], [1, 5, 9, 13], [2, 6, 10, 14], [3, 7, 11, 15]];
const DIAGONALS: [[usize; 4]; 4] = [[0, 5, 10, 15], [1, 6, 11, 12], [2, 7, 8, 13], [3, 4, 9, 14]];

/// ChaCha20's (RFC 8439, section 2.1).
fn chacha(rounds: &mut Rounds, [a, b, c, d]: [usize; 4]) {
    for (sum, term, mixed, distance) in [(a, b, d, 16), (c, d, b, 12), (a, b, d, 8), (c, d, b, 7)] {
        rounds.words[sum] = rounds.binary("add", sum, term);
        let word = rounds.binary("xor", mixed, sum);
        rounds.words[mixed] = rounds.rotate(&word, distance);
    }
}

/// Salsa20's: words are replaced in the order 1, 2, 3, 0.
fn salsa(rounds: &mut Rounds, [a, b, c, d]: [usize; 4]) {
    for (mixed, one, other, distance) in [(b, a, d, 7), (c, b, a, 9), (d, c, b, 13), (a, d, c, 18)] {
        let sum = rounds.binary("add", one, other);
        let rotated = rounds.rotate(&sum, distance);
        let word = rounds.words[mixed].clone();
        rounds.words[mixed] = rounds.emit(&format!("xor i32 {word}, {rotated}"));
    }
}

/// Argon2's, with a multiplication in each sum (RFC 9106, section 3.6).
fn argon(rounds: &mut Rounds, [a, b, c, d]: [usize; 4]) {
    for (sum, term, mixed, distance) in [(a, b, d, 32), (c, d, b, 40), (a, b, d, 48), (c, d, b, 1)] {
        let plain = rounds.binary("add", sum, term);
        let [low, other] = [sum, term].map(|word| {
            let word = rounds.words[word].clone();
            rounds.emit(&format!("and i64 {word}, 4294967295"))
        });
        let product = rounds.emit(&format!("mul i64 {low}, {other}"));
        let twice = rounds.emit(&format!("shl i64 {product}, 1"));
        rounds.words[sum] = rounds.emit(&format!("add i64 {plain}, {twice}"));
        let word = rounds.binary("xor", mixed, sum);
        rounds.words[mixed] = rounds.rotate(&word, distance);
    }
}

fn places() -> Vec<(u32, u32, u32)> {
    [(64, 512, 1), (64, 64, 10), (64, 96, 3), (4096, 4032, 2), (0xffff_f000, 128, 4)].into()
}

#[test]
fn columns_and_diagonals_in_a_loop_are_vectors() {
    agree(
        &Rounds::function(32, chacha, [COLUMNS, DIAGONALS], true),
        &places(),
        0,
        "call <4 x i32> @llvm.fshl.v4i32",
    );
    let rows = DIAGONALS.map(|[a, b, c, d]| [a, b, c, d]);
    agree(
        &Rounds::function(32, salsa, [COLUMNS, rows], true),
        &places(),
        0,
        "call <4 x i32> @llvm.fshl.v4i32",
    );
}

#[test]
fn columns_and_diagonals_without_a_loop_are_vectors() {
    agree(
        &Rounds::function(32, chacha, [COLUMNS, DIAGONALS], false),
        &places(),
        0,
        "call <4 x i32> @llvm.fshl.v4i32",
    );
    // Vectors of 256 bits, where the machine has them.
    agree(&Rounds::function(64, argon, [COLUMNS, DIAGONALS], false), &places(), 0, "");
    let ir = super::tests::optimized_text(&Rounds::function(64, argon, [COLUMNS, DIAGONALS], false));
    assert!(ir.contains("call <4 x i64> @llvm.fshl.v4i64"), "{ir}");
}

#[test]
fn columns_that_mix_are_not_taken_for_lanes() {
    // The second quarter uses a word of the first: there are no four chains.
    let tangled = [[0, 4, 8, 12], [1, 4, 9, 13], [2, 6, 10, 14], [3, 7, 11, 15]];
    agree(&Rounds::function(32, chacha, [tangled, DIAGONALS], true), &places(), 0, "");
}
