//! `mote inspect`.

use std::fmt::Write as _;
use std::fs::File;
use std::path::Path;

use mote_artifact::Artifact;
use mote_artifact::info::{ExportKind, GlobalType, ImportKind, Limits, MemoryType, TableType};
use mote_artifact::view::{FuncTypeView, FunctionView, ValueTypes};
use mote_store::{Module, ModuleError, Options, Refusal, Settings, Store};

use crate::arguments::Arguments;
use crate::build::set_option;
use crate::disassemble;
use crate::exit::Failure;
use crate::output::print;
use crate::progress::Progress;
use crate::values::{shown_bytes, text};

/// Whether the user says that this file is native code.
pub fn is_artifact_name(path: &Path) -> bool {
    path.extension().is_some_and(|extension| extension == "mote")
}

pub fn main(arguments: &Arguments) -> Result<u8, Failure> {
    let [file] = arguments.operands.as_slice() else {
        return Err(Failure::usage("mote inspect takes one FILE"));
    };
    let mut options = Options::default();
    let (mut function, mut list) = (None, false);
    for (flag, value) in &arguments.flags {
        match *flag {
            "function" => function = Some(text(flag, value)?.to_owned()),
            "functions" => list = true,
            _ => drop(set_option(&mut options, flag, value)?),
        }
    }
    let path = Path::new(file);
    let artifact = open(path, &options)?;
    if let Some(name) = function {
        let function = find(&artifact, &name).ok_or_else(|| {
            Failure::own(format!("{}: no function {name}; see mote inspect --functions", path.display()))
        })?;
        let wasm = if is_artifact_name(path) { None } else { Some(Module::open(path)?) };
        return print(&disassemble::function(&artifact, &function, wasm.as_ref())?).map(|()| 0);
    }
    print(&if list { functions(&artifact) } else { overview(&artifact) })?;
    Ok(0)
}

fn open(path: &Path, options: &Options) -> Result<Artifact, Failure> {
    if is_artifact_name(path) {
        let file = File::open(path).map_err(|source| match source.kind() {
            std::io::ErrorKind::NotFound => ModuleError::NotFound { path: path.to_owned() },
            _ => ModuleError::Unreadable { path: path.to_owned(), source },
        })?;
        // All of it is read: `run` looks at header and tables only.
        return Artifact::open_to_inspect(&file)
            .and_then(|artifact| artifact.verify_contents().map(|()| artifact))
            .map_err(|error| Failure::cannot_run(format!("{}: {error}", path.display())));
    }
    let mut load =
        |file: &File| Artifact::open_to_inspect(file).map_err(|error| Refusal::Unfit(error.to_string()));
    let mut progress = Progress::new(false);
    let store = Store::open(&Settings::from_environment());
    let obtained = store.obtain(Module::open(path)?, options, &mut load, &mut |event| progress.event(event));
    progress.clear();
    Ok(obtained?)
}

/// By name, by export, or by index.
fn find<'a>(artifact: &'a Artifact, name: &str) -> Option<FunctionView<'a>> {
    let exported = || {
        let export = artifact.export(name).filter(|export| export.kind == ExportKind::Function)?;
        artifact.function(export.index)
    };
    let named = || artifact.functions().find(|function| function.name == name);
    let numbered = || artifact.function(name.parse().ok()?);
    exported().or_else(named).or_else(numbered)
}

fn overview(artifact: &Artifact) -> String {
    let mut out = String::new();
    let name = if artifact.name().is_empty() { "(no name)" } else { artifact.name() };
    let sha256: String = artifact.wasm_sha256().iter().map(|byte| format!("{byte:02x}")).collect();
    let features: Vec<_> = artifact.cpu_features().collect();
    let _ = writeln!(out, "module    {}", printable(name));
    let _ = writeln!(out, "wasm      sha256 {sha256}");
    let _ = writeln!(out, "compiler  {}", printable(artifact.compiler()));
    let _ = writeln!(out, "options   {}", printable(artifact.options()));
    let _ = writeln!(out, "cpu       {}: {}", artifact.architecture(), printable(&features.join(" ")));
    let _ = writeln!(out, "\nsections");
    for section in artifact.sections().unwrap_or_default().iter().filter(|section| section.len != 0) {
        let name = printable(&section.name);
        let unused = if section.loaded { "" } else { "  (not mapped)" };
        let _ = writeln!(out, "  {name:<18} {:>12}{unused}", shown_bytes(section.len));
    }
    let _ = writeln!(out, "  {:<18} {:>12}", "whole file", shown_bytes(artifact.file_len()));
    let _ = writeln!(out, "\nfunctions  {} defined", artifact.defined_functions());
    if let Some(start) = artifact.start() {
        let _ = writeln!(out, "start      function {start}");
    }
    entities(&mut out, artifact);
    imports_and_exports(&mut out, artifact);
    out
}

fn entities(out: &mut String, artifact: &Artifact) {
    for memory in artifact.memories() {
        let _ = writeln!(out, "memory     {}", memory_text(&memory));
    }
    for table in artifact.tables() {
        let _ = writeln!(out, "table      {}", table_text(&table.ty));
    }
    let globals = artifact.globals().len();
    if globals > 0 {
        let _ = writeln!(out, "globals    {globals} defined");
    }
    let (data, elements) = (artifact.data().len(), artifact.elements().len());
    if data + elements > 0 {
        let _ = writeln!(out, "segments   {data} data, {elements} element");
    }
}

fn imports_and_exports(out: &mut String, artifact: &Artifact) {
    let _ = writeln!(out, "\nimports    {}", artifact.imports().len());
    for import in artifact.imports() {
        let kind = match import.kind {
            ImportKind::Function(ty) => function_type(artifact.func_type(ty)),
            ImportKind::Table(ty) => format!("table {}", table_text(&ty)),
            ImportKind::Memory(ty) => format!("memory {}", memory_text(&ty)),
            ImportKind::Global(ty) => format!("global {}", global_text(&ty)),
            ImportKind::Tag(ty) => format!("tag {}", function_type(artifact.func_type(ty))),
        };
        let _ = writeln!(out, "  {}.{}  {kind}", printable(import.module), printable(import.name));
    }
    let _ = writeln!(out, "\nexports    {}", artifact.exports().len());
    for export in artifact.exports() {
        let kind = match export.kind {
            ExportKind::Function => {
                function_type(artifact.function_type(export.index).and_then(|ty| artifact.func_type(ty)))
            }
            ExportKind::Table => "table".to_owned(),
            ExportKind::Memory => "memory".to_owned(),
            ExportKind::Global => "global".to_owned(),
            ExportKind::Tag => "tag".to_owned(),
        };
        let _ = writeln!(out, "  {}  {kind} #{}", printable(export.name), export.index);
    }
}

fn functions(artifact: &Artifact) -> String {
    let mut out = format!("{:>8} {:>10} {:>10}  name\n", "index", "code", "wasm");
    for function in artifact.functions() {
        let FunctionView { index, code_size, wasm_size, name, .. } = function;
        let _ = writeln!(out, "{index:>8} {code_size:>10} {wasm_size:>10}  {}", printable(name));
    }
    out
}

/// Names come from modules, and modules from anywhere: no control character reaches the terminal.
pub fn printable(text: &str) -> String {
    text.chars().map(|c| if c.is_control() { '\u{fffd}' } else { c }).collect()
}

fn function_type(ty: Option<FuncTypeView<'_>>) -> String {
    match ty {
        Some(ty) => format!(
            "func{}{}",
            values(ty.params),
            if ty.results.is_empty() { String::new() } else { format!(" -> {}", values(ty.results)) }
        ),
        None => "func".to_owned(),
    }
}

fn values(types: ValueTypes<'_>) -> String {
    let names: Vec<_> = types.iter().map(|ty| format!("{ty:?}").to_lowercase()).collect();
    format!("({})", names.join(", "))
}

fn limits(limits: &Limits) -> String {
    match limits.max {
        Some(max) => format!("{} to {max}", limits.min),
        None => format!("{} or more", limits.min),
    }
}

fn memory_text(ty: &MemoryType) -> String {
    let shared = if ty.shared { ", shared" } else { "" };
    let wide = if ty.memory64 { ", 64-bit addresses" } else { "" };
    format!("{} pages of 64 KiB{shared}{wide}", limits(&ty.limits))
}

fn table_text(ty: &TableType) -> String {
    let wide = if ty.table64 { ", 64-bit indices" } else { "" };
    format!("{} elements of {}{wide}", limits(&ty.limits), format!("{:?}", ty.element).to_lowercase())
}

fn global_text(ty: &GlobalType) -> String {
    let mutable = if ty.mutable { "mutable " } else { "" };
    format!("{mutable}{}", format!("{:?}", ty.value).to_lowercase())
}
