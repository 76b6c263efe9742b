//! Runs LLVM's passes over one module and turns it into an object file.

use std::fmt::Write as _;
use std::sync::Once;

use inkwell::OptimizationLevel;
use inkwell::module::Module;
use inkwell::passes::PassBuilderOptions;
use inkwell::targets::{
    CodeModel, FileType, InitializationConfig, RelocMode, Target as LlvmTarget, TargetMachine, TargetTriple,
};
use inkwell::values::InstructionOpcode;

use crate::{CompileError, OptLevel};

static INITIALIZE: Once = Once::new();

/// The machine that code is made for.
pub(crate) struct Target {
    triple: TargetTriple,
    cpu: String,
    features: String,
    level: OptLevel,
}

impl Target {
    /// The host, or the named CPU of the host's architecture.
    pub(crate) fn new(cpu: Option<&str>, level: OptLevel) -> Result<Self, CompileError> {
        INITIALIZE.call_once(|| {
            LlvmTarget::initialize_x86(&InitializationConfig::default());
            LlvmTarget::initialize_aarch64(&InitializationConfig::default());
        });
        let triple = TargetMachine::get_default_triple();
        let (cpu, features) = match cpu {
            None => (
                TargetMachine::get_host_cpu_name().to_string(),
                TargetMachine::get_host_cpu_features().to_string(),
            ),
            Some(name) => (name.to_owned(), String::new()),
        };
        Ok(Self { triple, cpu, features, level })
    }

    /// LLVM's name of the CPU.
    pub(crate) fn cpu(&self) -> &str {
        &self.cpu
    }

    /// LLVM's feature string: `+a,-b,…`.
    pub(crate) fn features(&self) -> &str {
        &self.features
    }

    /// The features that the CPU has, sorted.
    pub(crate) fn enabled_features(&self) -> Vec<String> {
        let mut enabled: Vec<String> = self
            .features
            .split(',')
            .filter_map(|feature| feature.strip_prefix('+'))
            .map(str::to_owned)
            .collect();
        enabled.sort();
        enabled
    }

    /// The triple.
    pub(crate) fn triple(&self) -> &TargetTriple {
        &self.triple
    }

    /// A target machine, one per thread.
    pub(crate) fn machine(&self) -> Result<TargetMachine, CompileError> {
        let target =
            LlvmTarget::from_triple(&self.triple).map_err(|error| CompileError::Target(error.to_string()))?;
        let level = match self.level {
            OptLevel::O0 => OptimizationLevel::None,
            OptLevel::O1 => OptimizationLevel::Less,
            OptLevel::O3 => OptimizationLevel::Aggressive,
        };
        target
            .create_target_machine(
                &self.triple,
                &self.cpu,
                &self.features,
                level,
                RelocMode::PIC,
                CodeModel::Small,
            )
            .ok_or_else(|| CompileError::Target(format!("LLVM has no CPU named `{}`", self.cpu)))
    }
}

/// Optimises `module` and returns the object file.
pub(crate) fn run(module: &Module<'_>, target: &Target, level: OptLevel) -> Result<Vec<u8>, CompileError> {
    let machine = target.machine()?;
    let mut passes = String::new();
    let _ = write!(
        passes,
        "default<{}>",
        match level {
            OptLevel::O0 => "O0",
            OptLevel::O1 => "O1",
            OptLevel::O3 => "O3",
        }
    );
    let options = PassBuilderOptions::create();
    module.run_passes(&passes, &machine, options).map_err(|error| CompileError::Llvm(error.to_string()))?;
    strip_witnesses(module);
    let object = machine
        .write_to_memory_buffer(module, FileType::Object)
        .map_err(|error| CompileError::Llvm(error.to_string()))?;
    Ok(object.as_slice().to_vec())
}

fn strip_witnesses(module: &Module<'_>) {
    for function in module.get_functions() {
        for block in function.get_basic_blocks() {
            let witnesses: Vec<_> = block
                .get_instructions()
                .filter(|instruction| {
                    instruction.get_opcode() == InstructionOpcode::Call && is_witness(instruction)
                })
                .collect();
            for witness in witnesses {
                witness.erase_from_basic_block();
            }
        }
    }
}

fn is_witness(call: &inkwell::values::InstructionValue<'_>) -> bool {
    let callee =
        call.get_operand(call.get_num_operands().saturating_sub(1)).and_then(|operand| operand.value());
    callee.is_some_and(|callee| {
        callee.is_pointer_value()
            && callee.into_pointer_value().get_name().to_bytes().starts_with(b"mote.witness.")
    })
}
