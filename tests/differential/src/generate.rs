//! Modules and arguments from a seed.

use arbitrary::Unstructured;
use wasm_smith::{Config, MemoryOffsetChoices, Module};

/// SplitMix64: small, fast, and the same everywhere.
#[derive(Clone, Debug)]
pub struct Random(u64);

impl Random {
    /// The sequence of this seed.
    pub fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// The next number.
    pub fn next_word(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// A number below `limit`, which is not 0.
    pub fn below(&mut self, limit: u64) -> u64 {
        self.next_word() % limit
    }

    /// True `percent` times out of a hundred.
    fn chance(&mut self, percent: u64) -> bool {
        self.below(100) < percent
    }
}

/// Fuel that a module has for all its calls: loop iterations and calls together.
const FUEL: u32 = 500;

/// Features differ from seed to seed, so that each has modules to itself.
fn config(random: &mut Random) -> Config {
    let memory_pages = 1 + random.below(4);
    let memory_bytes = memory_pages * 65536;
    Config {
        // What neither engine, or only one, has; relaxed SIMD may differ by definition.
        gc_enabled: false,
        exceptions_enabled: false,
        threads_enabled: false,
        relaxed_simd_enabled: false,
        custom_page_sizes_enabled: false,
        custom_descriptors_enabled: false,
        compact_imports_enabled: false,
        canonicalize_nans: true,
        export_everything: true,
        simd_enabled: random.chance(60),
        tail_call_enabled: random.chance(30),
        wide_arithmetic_enabled: random.chance(30),
        memory64_enabled: random.chance(30),
        extended_const_enabled: true,
        allow_floats: random.chance(85),
        disallow_traps: random.chance(65),
        max_memories: if random.chance(25) { 3 } else { 1 },
        min_memories: u32::from(random.chance(80)),
        max_tables: if random.chance(25) { 3 } else { 1 },
        max_imports: if random.chance(30) { 4 } else { 0 },
        min_funcs: 2,
        max_funcs: 2 + random.below(5) as usize,
        max_globals: 6,
        max_instructions: 40 + random.below(160) as usize,
        min_types: 4,
        max_types: 8,
        max_values: 6,
        max_data_segments: 4,
        max_element_segments: 4,
        max_elements: 20,
        max_memory32_bytes: memory_bytes,
        max_memory64_bytes: u128::from(memory_bytes),
        memory_max_size_required: true,
        max_table_elements: 64,
        table_max_size_required: true,
        // Mostly inside of the memory: an access that traps ends the interesting part.
        memory_offset_choices: MemoryOffsetChoices(90, 9, 1),
        ..Config::default()
    }
}

/// The module of a seed; `None` for the few seeds from which none can be made.
pub fn module(seed: u64) -> Option<Vec<u8>> {
    let mut random = Random::new(seed);
    let config = config(&mut random);
    let length = 1024 + random.below(5120);
    let bytes: Vec<u8> = (0..length).map(|_| random.next_word() as u8).collect();
    build(config, &mut Unstructured::new(&bytes))
}

/// A module from a fuzzer's bytes.
pub fn module_from_bytes(bytes: &[u8]) -> Option<Vec<u8>> {
    let mut choices = Unstructured::new(bytes);
    let seed = choices.arbitrary().ok()?;
    build(config(&mut Random::new(seed)), &mut choices)
}

fn build(config: Config, choices: &mut Unstructured<'_>) -> Option<Vec<u8>> {
    let mut module = Module::new(config, choices).ok()?;
    module.ensure_termination(FUEL).ok()?;
    let mut wasm = module.to_bytes();
    rewrite_guards(&mut wasm);
    Some(wasm)
}

/// Rewrites wasm-smith's guard of a divisor, `select(1, x, x == 0)`, as `x + (x == 0)` in as many bytes.
///
/// wasmi 2.0.0 takes the 1 whatever x is, or divides by 0 all the same; 12 of the first 6000 modules showed it.
fn rewrite_guards(wasm: &mut [u8]) {
    const NOP: u8 = 0x01;
    const LOCAL_GET: u8 = 0x20;
    const SELECT: u8 = 0x1b;
    for at in 0..wasm.len().saturating_sub(7) {
        let Some(window) = wasm.get_mut(at..at + 8) else { return };
        let Ok(window) = <&mut [u8; 8]>::try_from(window) else { return };
        match *window {
            // i32.const 1, local.get x twice, i32.eqz, select
            [0x41, 1, LOCAL_GET, x, LOCAL_GET, y, 0x45, SELECT] if x == y && x < 0x80 => {
                *window = [NOP, NOP, LOCAL_GET, x, LOCAL_GET, x, 0x45, 0x6a];
            }
            // i64.const 1, local.get x twice, i64.eqz, select: i64.extend_i32_u, i64.add
            [0x42, 1, LOCAL_GET, x, LOCAL_GET, y, 0x50, SELECT] if x == y && x < 0x80 => {
                *window = [NOP, LOCAL_GET, x, LOCAL_GET, x, 0x50, 0xad, 0x7c];
            }
            _ => {}
        }
    }
}
