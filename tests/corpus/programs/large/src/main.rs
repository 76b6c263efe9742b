//! `large KIND TEXT` reads TEXT as one of several languages and prints what its library makes of it. Without arguments: hello.

use std::error::Error;

type Result = std::result::Result<(), Box<dyn Error>>;

fn main() -> Result {
    let mut arguments = std::env::args().skip(1);
    let Some(kind) = arguments.next() else {
        println!("hello");
        return Ok(());
    };
    let text = arguments.next().unwrap_or_default();
    match kind.as_str() {
        "json" => json(&text),
        "module" => module(&text),
        "random-module" => random_module(&text),
        "regex" => regex(&text),
        "rust" => rust(&text),
        "shader" => shader(&text),
        other => Err(format!("no such kind: {other}").into()),
    }
}

fn json(text: &str) -> Result {
    let value: serde_json::Value = serde_json::from_str(text)?;
    println!("{value:#}");
    Ok(())
}

fn module(text: &str) -> Result {
    let wasm = wat::parse_str(text)?;
    println!("{}", wasmprinter::print_bytes(&wasm)?);
    let engine = wasmi::Engine::default();
    let module = wasmi::Module::new(&engine, &wasm)?;
    let mut store = wasmi::Store::new(&engine, ());
    let linker: wasmi::Linker<()> = wasmi::Linker::new(&engine);
    let instance = linker.instantiate_and_start(&mut store, &module)?;
    for export in instance.exports(&store) {
        println!("export {}", export.name());
    }
    Ok(())
}

fn random_module(seed: &str) -> Result {
    let mut source = arbitrary::Unstructured::new(seed.as_bytes());
    let module = wasm_smith::Module::new(wasm_smith::Config::default(), &mut source)?;
    println!("{}", wasmprinter::print_bytes(module.to_bytes())?);
    Ok(())
}

fn regex(pattern: &str) -> Result {
    let regex = regex::Regex::new(pattern)?;
    println!("{regex:?} matches itself: {}", regex.is_match(pattern));
    Ok(())
}

fn rust(text: &str) -> Result {
    let file = syn::parse_file(text)?;
    println!("{file:?}\n{}\n{}", prettyplease::unparse(&file), file == file.clone());
    Ok(())
}

fn shader(text: &str) -> Result {
    use naga::back::{msl, spv, wgsl};
    use naga::valid::{Capabilities, ValidationFlags, Validator};
    let module = naga::front::wgsl::parse_str(text)?;
    let info = Validator::new(ValidationFlags::all(), Capabilities::all()).validate(&module)?;
    println!("{}", wgsl::write_string(&module, &info, wgsl::WriterFlags::empty())?);
    println!("{:?}", spv::write_vec(&module, &info, &spv::Options::default(), None)?);
    println!("{}", msl::write_string(&module, &info, &msl::Options::default(), &msl::PipelineOptions::default())?.0);
    Ok(())
}
