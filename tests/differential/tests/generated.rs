//! Generated modules at `-O1` and `-O3`, and the modules that once found a bug.
//!
//! `MOTE_DIFFERENTIAL=N` is the number of modules (20 000 in CI; 300 when absent), a tenth of which are compiled at `-O3`. Their seeds
//! are 0, 1, 2…; `MOTE_DIFFERENTIAL_FROM` is the first. A failure names its seed: `MOTE_DIFFERENTIAL_FROM=SEED
//! MOTE_DIFFERENTIAL=1` repeats it, and `MOTE_DIFFERENTIAL_SAVE=FOLDER` writes the module there.

use std::collections::BTreeMap;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use mote_compiler::OptLevel;
use mote_differential::{Verdict, compare, module, options};

/// One in ten is optimised fully; one in four keeps every store in order.
fn compile_options(seed: u64) -> mote_compiler::Options {
    let level = if seed % 10 == 9 { OptLevel::O3 } else { OptLevel::O1 };
    options(level, seed % 4 == 3)
}

#[test]
fn generated_modules_do_the_same_on_both_engines() {
    let number =
        |variable, default: u64| std::env::var(variable).map_or(default, |text| text.parse().unwrap());
    let count = number("MOTE_DIFFERENTIAL", 300);
    let first = number("MOTE_DIFFERENTIAL_FROM", 0);
    let next = AtomicU64::new(first);
    let same = AtomicU64::new(0);
    let inconclusive = Mutex::new(BTreeMap::<&str, u64>::new());
    let differences = Mutex::new(Vec::new());
    let began = Instant::now();
    std::thread::scope(|scope| {
        for _ in 0..std::thread::available_parallelism().map_or(1, usize::from) {
            scope.spawn(|| {
                loop {
                    let seed = next.fetch_add(1, Ordering::Relaxed);
                    if seed >= first + count {
                        break;
                    }
                    let inconclusive = |reason| *inconclusive.lock().unwrap().entry(reason).or_default() += 1;
                    let Some(wasm) = module(seed) else {
                        inconclusive("no module from this seed");
                        continue;
                    };
                    if let Some(folder) = std::env::var_os("MOTE_DIFFERENTIAL_SAVE") {
                        let file = std::path::Path::new(&folder).join(format!("{seed}.wasm"));
                        std::fs::write(file, &wasm).unwrap();
                    }
                    match compare(&wasm, seed, &compile_options(seed)) {
                        Ok(Verdict::Same) => {
                            same.fetch_add(1, Ordering::Relaxed);
                        }
                        Ok(Verdict::Inconclusive(reason)) => inconclusive(reason),
                        Err(difference) => {
                            println!("seed {seed}: {difference}");
                            differences.lock().unwrap().push(seed);
                        }
                    }
                }
            });
        }
    });
    let seconds = began.elapsed().as_secs_f64();
    let (same, inconclusive) = (same.into_inner(), inconclusive.into_inner().unwrap());
    let mut differences = differences.into_inner().unwrap();
    differences.sort_unstable();
    println!(
        "{count} modules in {seconds:.1} s ({:.1} a second): {same} the same, {} different, not compared: {inconclusive:?}",
        count as f64 / seconds,
        differences.len()
    );
    assert!(differences.is_empty(), "seeds {differences:?}");
    let left_out: u64 = inconclusive.values().sum();
    assert!(count < 100 || left_out * 10 <= count, "{left_out} of {count} modules were not compared");
}

/// Modules that once did something else than they should, at every level, loose and strict.
#[test]
fn modules_that_found_a_bug_do_the_same_on_both_engines() {
    let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("regressions");
    let mut files: Vec<_> = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    files.retain(|file| file.extension().is_some_and(|it| it == "wat"));
    files.sort();
    assert!(!files.is_empty());
    for file in files {
        let wasm = wat::parse_file(&file).unwrap();
        for level in [OptLevel::O0, OptLevel::O1, OptLevel::O3] {
            for strict in [false, true] {
                for seed in 0..4 {
                    let verdict = compare(&wasm, seed, &options(level, strict));
                    let name = file.file_name().unwrap();
                    assert!(
                        matches!(verdict, Ok(Verdict::Same)),
                        "{name:?} at {level:?}, strict {strict}, seed {seed}: {verdict:?}"
                    );
                }
            }
        }
    }
}
