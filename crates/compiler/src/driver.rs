//! Parsed module to artifact: partitions through LLVM on several threads, then the linker and the writer.

use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use inkwell::attributes::AttributeLoc;
use inkwell::context::Context;
use mote_artifact::ModuleInfo;

use crate::limits::PROMOTED;
use crate::link::{Builtins, link_with};
use crate::optimize::Target;
use crate::parse::{Body, Parsed, parse};
use crate::partition::{Partition, partition};
use crate::translate::Unit;
use crate::{CompileError, OptLevel, Options, Progress, optimize, version};

/// Stack of a compiling thread: LLVM recurses over deep expressions and blocks.
pub const THREAD_STACK: usize = 256 << 20;

/// Features without which common operators would become calls into a C library.
const REQUIRED_FEATURES: [&str; 5] = ["cx16", "popcnt", "sse4.1", "sse4.2", "ssse3"];

/// Compiles a module to an artifact, telling `progress` how far it is.
pub(crate) fn compile(
    wasm: &[u8],
    options: &Options,
    progress: &Progress<'_>,
) -> Result<Vec<u8>, CompileError> {
    let (mut info, objects) = compile_to_objects(wasm, options, progress)?;
    let wide = info.cpu_features.iter().any(|feature| feature == "avx2");
    let builtins = if wide { Builtins::Avx2 } else { Builtins::Baseline };
    let code = link_with(&objects, builtins)?;
    code.place(&mut info)?;
    Ok(mote_artifact::write(&info, &code)?)
}

/// Compiles a module to object files, telling `progress` how far it is.
fn compile_to_objects(
    wasm: &[u8],
    options: &Options,
    progress: &Progress<'_>,
) -> Result<(ModuleInfo, Vec<Vec<u8>>), CompileError> {
    let (mut parsed, bodies) = parse(wasm, options)?;
    let target = target(options)?;
    describe(&mut parsed.info, &target, options);
    let objects = objects(&parsed, &bodies, &target, options, progress)?;
    Ok((parsed.info, objects))
}

fn target(options: &Options) -> Result<Target, CompileError> {
    let target = Target::new(options.cpu.as_deref())?;
    if target.triple().as_str().to_bytes().starts_with(b"x86_64") {
        for feature in REQUIRED_FEATURES {
            if !target.enabled_features().iter().any(|known| known == feature) {
                return Err(CompileError::Target(format!(
                    "CPU `{}` has no {feature}; x86-64-v2 is the least that is supported",
                    target.cpu()
                )));
            }
        }
    }
    Ok(target)
}

/// What the artifact says about how it was made.
fn describe(info: &mut ModuleInfo, target: &Target, options: &Options) {
    let triple = target.triple().as_str().to_string_lossy().into_owned();
    info.architecture = triple.split('-').next().unwrap_or_default().to_owned();
    info.compiler = version();
    info.options = options.canonical(target.cpu());
    info.cpu_features = target.enabled_features().to_vec();
}

/// Where an object file goes when it is made.
type Slot = Mutex<Option<Result<Vec<u8>, CompileError>>>;

/// The object files, in an order that does not depend on threads.
fn objects(
    parsed: &Parsed,
    bodies: &[Body<'_>],
    target: &Target,
    options: &Options,
    progress: &Progress<'_>,
) -> Result<Vec<Vec<u8>>, CompileError> {
    let partitions = partition(bodies, options.opt_level);
    let total: u64 = partitions.iter().map(|part| part.bytes).sum();
    // Item 0 is the thunks; the largest partitions start first.
    let mut order: Vec<usize> = (0..=partitions.len()).collect();
    order.sort_by_key(|&item| {
        std::cmp::Reverse(item.checked_sub(1).and_then(|at| partitions.get(at)).map(|part| part.bytes))
    });
    let results: Vec<Slot> = order.iter().map(|_| Mutex::new(None)).collect();
    let next = AtomicUsize::new(0);
    let done = Mutex::new(0u64);
    let work = || {
        while let Some(&item) = order.get(next.fetch_add(1, Ordering::Relaxed)) {
            let part = item.checked_sub(1).and_then(|at| partitions.get(at));
            let object = match part {
                None => thunks(parsed, target, options),
                Some(part) => object(parsed, bodies, part, item, target, options),
            };
            if let Some(Ok(mut slot)) = results.get(item).map(Mutex::lock) {
                *slot = Some(object);
            }
            if let Ok(mut done) = done.lock() {
                *done += part.map_or(0, |part| part.bytes);
                progress(*done, total);
            }
        }
    };
    let threads = options.jobs.clamp(1, order.len());
    std::thread::scope(|scope| {
        for _ in 0..threads {
            std::thread::Builder::new()
                .name("compile".to_owned())
                .stack_size(THREAD_STACK)
                .spawn_scoped(scope, work)
                .map_err(|error| CompileError::internal(format!("cannot start a thread: {error}")))?;
        }
        Ok::<(), CompileError>(())
    })?;
    results
        .into_iter()
        .map(|slot| {
            let object = slot.into_inner().ok().flatten();
            object.unwrap_or_else(|| Err(CompileError::internal("a compiling thread died")))
        })
        .collect()
}

fn object(
    parsed: &Parsed,
    bodies: &[Body<'_>],
    part: &Partition,
    item: usize,
    target: &Target,
    options: &Options,
) -> Result<Vec<u8>, CompileError> {
    let context = Context::create();
    let unit = Unit::new(&context, &format!("part{item}"), parsed, options, target);
    for &position in &part.functions {
        let body = bodies.get(position).ok_or_else(|| CompileError::internal("no such body"))?;
        let index =
            u32::try_from(position).ok().and_then(|at| at.checked_add(parsed.info.counts.imported_functions));
        let index = index.ok_or_else(|| CompileError::internal("too many functions"))?;
        unit.translate(index, &body.body).map_err(|error| error.in_function(index))?;
        if part.level == OptLevel::O0 && !body.size.fits(&PROMOTED) {
            keep_slots(&unit, index);
        }
    }
    finish(&unit, target, part.level)
}

/// Locals of the function stay in their stack slots.
fn keep_slots(unit: &Unit<'_, '_>, index: u32) {
    if let Some(function) = unit.module.get_function(&format!("f{index}")) {
        let context = unit.module.get_context();
        function.add_attribute(AttributeLoc::Function, context.create_string_attribute("mote-tier", "slots"));
    }
}

fn thunks(parsed: &Parsed, target: &Target, options: &Options) -> Result<Vec<u8>, CompileError> {
    let context = Context::create();
    let unit = Unit::new(&context, "thunks", parsed, options, target);
    unit.define_thunks()?;
    finish(&unit, target, options.opt_level.min(OptLevel::O1))
}

fn finish(unit: &Unit<'_, '_>, target: &Target, level: OptLevel) -> Result<Vec<u8>, CompileError> {
    unit.lines.finish();
    if cfg!(debug_assertions) {
        unit.module.verify().map_err(|error| CompileError::Llvm(error.to_string()))?;
    }
    optimize::run(&unit.module, target, level)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Limits;

    fn wasm(text: &str) -> Vec<u8> {
        wat::parse_str(text).unwrap()
    }

    fn refusal(text: &str, options: &Options) -> String {
        compile_to_objects(&wasm(text), options, &|_, _| {}).unwrap_err().to_string()
    }

    #[test]
    fn the_number_of_threads_does_not_change_the_code() {
        let functions: String = (0..300)
            .map(|n| {
                format!(
                    "(func (param i32) (result i32) (i32.mul (local.get 0) (i32.const {n})) {})",
                    "(drop (i32.const 1))".repeat(500)
                )
            })
            .collect();
        let wasm = wasm(&format!("(module {functions})"));
        let with = |jobs| {
            let options = Options { jobs, opt_level: OptLevel::O1, ..Options::default() };
            compile_to_objects(&wasm, &options, &|_, _| {}).unwrap()
        };
        let (one, three) = (with(1), with(3));
        assert!(one.1.len() > 2, "the module fills several partitions");
        assert!(one == three);
    }

    #[test]
    fn proposals_that_are_refused_are_named() {
        let options = Options::default();
        let gc = refusal("(module (type (struct (field i32))))", &options);
        assert!(gc.contains("garbage collection") && gc.contains("not supported"), "{gc}");
        let legacy = refusal("(module (func try catch_all end))", &options);
        assert!(legacy.contains("legacy exception handling"), "{legacy}");
        let page = refusal("(module (memory 1 (pagesize 1)))", &options);
        assert!(page.contains("custom page sizes"), "{page}");
        let component = wat::parse_str("(component)").unwrap();
        let component = compile_to_objects(&component, &options, &|_, _| {}).unwrap_err().to_string();
        assert!(component.contains("component") && component.contains("not supported"), "{component}");
    }

    #[test]
    fn malformed_modules_are_refused_with_an_offset() {
        let options = Options::default();
        let invalid = refusal("(module (func (result i32) (i64.const 1)))", &options);
        assert!(
            invalid.starts_with("invalid module: type mismatch") && invalid.contains("offset 0x"),
            "{invalid}"
        );
        let whole = wasm("(module (memory 1) (func (export \"f\") (result i32) (i32.load (i32.const 1))))");
        for len in 0..whole.len() {
            let cut = whole.get(..len).unwrap();
            let found = compile_to_objects(cut, &options, &|_, _| {});
            // A cut between sections leaves a module of fewer sections.
            if let Err(error) = found {
                assert!(error.to_string().starts_with("invalid module"), "{len}: {error}");
            }
        }
    }

    #[test]
    fn limits_say_what_and_where() {
        let limits = Limits { function_locals: 10, ..Limits::default() };
        let options = Options { limits, ..Options::default() };
        let locals =
            refusal("(module (func) (func (local i32 i32 i32 i32 i32 i32 i32 i32 i32 i32 i32)))", &options);
        assert_eq!(locals, "locals of a function: 11 is over the limit of 10 (function 1)");
        let limits = Limits { function_br_targets: 3, ..Limits::default() };
        let options = Options { limits, ..Options::default() };
        let targets = refusal("(module (func (br_table 0 0 0 0 (i32.const 1))))", &options);
        assert!(targets.starts_with("br_table targets"), "{targets}");
    }

    #[test]
    fn an_unknown_or_too_old_cpu_is_refused() {
        let unknown = refusal("(module)", &Options { cpu: Some("z80".to_owned()), ..Options::default() });
        assert!(unknown.contains("z80"), "{unknown}");
        let old = refusal("(module)", &Options { cpu: Some("x86-64".to_owned()), ..Options::default() });
        assert!(old.contains("x86-64-v2"), "{old}");
    }
}
