//! One script: its modules, its instances, its directives.

use std::collections::HashMap;
use std::fmt;

use mote_compiler::CompileError;
use mote_runtime::{Extern, Instance, InstantiateError, Linker, Module, Store, Trap, TrapCode, Val};
use wast::lexer::Lexer;
use wast::parser::ParseBuffer;
use wast::token::{Id, Span};
use wast::{QuoteWat, Wast, WastDirective, WastExecute, WastInvoke};

use crate::skips::FileSkips;
use crate::{Settings, Skips, expect, host};

/// A directive that did not do what the script says.
#[derive(Clone, Debug)]
pub struct Failure {
    /// `suite/file.wast`.
    pub file: String,
    /// Line of the directive, from 1.
    pub line: usize,
    /// What was expected and found.
    pub message: String,
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}: {}", self.file, self.line, self.message)
    }
}

/// What became of a script's directives.
#[derive(Clone, Debug, Default)]
pub struct Report {
    /// Directives that did what the script says.
    pub passed: usize,
    /// Directives that the list of skips names, or that depend on a module that it names.
    pub skipped: usize,
    /// The others.
    pub failures: Vec<Failure>,
}

impl Report {
    /// Adds the numbers of another script.
    pub fn add(&mut self, other: Self) {
        self.passed += other.passed;
        self.skipped += other.skipped;
        self.failures.extend(other.failures);
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} passed, {} failed, {} skipped", self.passed, self.failures.len(), self.skipped)
    }
}

/// Runs the script `text`, which the list of skips and messages know as `file`.
pub fn run(file: &str, text: &str, skips: &Skips, settings: &Settings) -> Report {
    let skips = skips.of(file);
    let mut report = Report::default();
    let fail = |report: &mut Report, line, message| {
        report.failures.push(Failure { file: file.to_owned(), line, message });
    };
    let mut lexer = Lexer::new(text);
    lexer.allow_confusing_unicode(true);
    let buffer = match ParseBuffer::new_with_lexer(lexer) {
        Ok(buffer) => buffer,
        Err(error) => {
            fail(&mut report, error.span().linecol_in(text).0 + 1, error.message());
            return report;
        }
    };
    let script = match wast::parser::parse::<Wast>(&buffer) {
        Ok(script) => script,
        Err(error) => {
            let line = error.span().linecol_in(text).0 + 1;
            match skips.reason(line) {
                Some(_) => report.skipped += 1,
                None => fail(&mut report, line, error.message()),
            }
            return report;
        }
    };
    let mut runner = match Runner::new(text, &skips, settings) {
        Ok(runner) => runner,
        Err(message) => {
            fail(&mut report, 1, message);
            return report;
        }
    };
    for directive in script.directives {
        let line = line_of(text, directive.span());
        match runner.directive(directive) {
            Ok(()) => report.passed += 1,
            Err(Stop::Skipped) => report.skipped += 1,
            Err(Stop::NotRun) => {}
            Err(Stop::Failed(message)) => fail(&mut report, line, message),
        }
    }
    report
}

fn line_of(text: &str, span: Span) -> usize {
    span.linecol_in(text).0 + 1
}

/// Why a directive did not pass.
enum Stop {
    /// The list says so, or of the module it depends on.
    Skipped,
    /// Only compiling.
    NotRun,
    Failed(String),
}

impl From<String> for Stop {
    fn from(message: String) -> Self {
        Self::Failed(message)
    }
}

/// A module or instance that a script names.
#[derive(Clone)]
enum Named<T> {
    There(T),
    Skipped,
    NotRun,
    Failed,
}

impl<T: Clone> Named<T> {
    fn from_result(result: &Result<T, Stop>) -> Self {
        match result {
            Ok(it) => Self::There(it.clone()),
            Err(Stop::Skipped) => Self::Skipped,
            Err(Stop::NotRun) => Self::NotRun,
            Err(Stop::Failed(_)) => Self::Failed,
        }
    }

    fn get(&self) -> Result<T, Stop> {
        match self {
            Self::There(it) => Ok(it.clone()),
            Self::Skipped => Err(Stop::Skipped),
            Self::NotRun => Err(Stop::NotRun),
            Self::Failed => Err(Stop::Failed("its module failed".to_owned())),
        }
    }
}

/// What a guest did.
enum Ended {
    Returned(Vec<Val>),
    Trapped(Trap),
}

struct Runner<'a> {
    text: &'a str,
    skips: &'a FileSkips<'a>,
    settings: &'a Settings,
    store: Store<()>,
    linker: Linker<()>,
    last_module: Option<Named<Module>>,
    modules: HashMap<String, Named<Module>>,
    last_instance: Option<Named<Instance>>,
    instances: HashMap<String, Named<Instance>>,
}

impl<'a> Runner<'a> {
    fn new(text: &'a str, skips: &'a FileSkips<'a>, settings: &'a Settings) -> Result<Self, String> {
        let mut store = Store::new(());
        let mut linker = Linker::new();
        host::define_spectest(&mut store, &mut linker)?;
        Ok(Self {
            text,
            skips,
            settings,
            store,
            linker,
            last_module: None,
            modules: HashMap::new(),
            last_instance: None,
            instances: HashMap::new(),
        })
    }

    fn directive(&mut self, directive: WastDirective<'_>) -> Result<(), Stop> {
        let line = line_of(self.text, directive.span());
        let skipped = self.skips.reason(line).is_some();
        match directive {
            WastDirective::Module(mut module) => {
                let id = module.name();
                let result = if skipped { Err(Stop::Skipped) } else { self.instantiate_text(&mut module) };
                self.remember_instance(id, &result);
                result.map(drop)
            }
            WastDirective::ModuleDefinition(mut module) => {
                let id = module.name();
                let result = if skipped { Err(Stop::Skipped) } else { self.compile_text(&mut module) };
                let named = Named::from_result(&result);
                if let Some(id) = id {
                    self.modules.insert(id.name().to_owned(), named.clone());
                }
                self.last_module = Some(named);
                result.map(drop)
            }
            WastDirective::ModuleInstance { instance, module, .. } => {
                let result = if skipped { Err(Stop::Skipped) } else { self.instantiate_named(module) };
                self.remember_instance(instance, &result);
                result.map(drop)
            }
            _ if skipped => Err(Stop::Skipped),
            WastDirective::AssertMalformed { module, message, .. }
            | WastDirective::AssertInvalid { module, message, .. } => self.assert_refused(module, message),
            WastDirective::Register { name, module, .. } => {
                let instance = self.instance(module)?;
                self.linker.instance(&mut self.store, name.to_owned(), instance);
                Ok(())
            }
            WastDirective::Invoke(call) => match self.invoke(&call)? {
                Ended::Returned(_) => Ok(()),
                Ended::Trapped(trap) => Err(Stop::Failed(format!("trapped: {}", message(&trap)))),
            },
            WastDirective::AssertReturn { exec, results, .. } => match self.execute(exec)? {
                Ended::Returned(found) => Ok(expect::check_results(&found, &results)?),
                Ended::Trapped(trap) => Err(Stop::Failed(format!("trapped: {}", message(&trap)))),
            },
            WastDirective::AssertTrap { exec, message, .. } => {
                let ended = self.execute(exec)?;
                expect_trap(ended, message)
            }
            WastDirective::AssertExhaustion { call, message, .. } => {
                let ended = self.invoke(&call)?;
                expect_trap(ended, message)
            }
            WastDirective::AssertException { exec, .. } => match self.execute(exec)? {
                Ended::Trapped(trap) if trap.code() == Some(TrapCode::UncaughtException) => Ok(()),
                Ended::Trapped(trap) => {
                    Err(Stop::Failed(format!("expected an exception, trapped: {}", message(&trap))))
                }
                Ended::Returned(_) => Err(Stop::Failed("expected an exception, returned".to_owned())),
            },
            WastDirective::AssertUnlinkable { module, message, .. } => {
                self.assert_unlinkable(QuoteWat::Wat(module), message)
            }
            WastDirective::AssertMalformedCustom { .. }
            | WastDirective::AssertInvalidCustom { .. }
            | WastDirective::AssertSuspension { .. }
            | WastDirective::Thread(_)
            | WastDirective::Wait { .. } => {
                Err(Stop::Failed("a directive that is not known here".to_owned()))
            }
        }
    }

    // Modules.

    fn compile(&self, wasm: &[u8]) -> Result<Module, CompileError> {
        let file = mote_compiler::compile(wasm, &self.settings.options)?;
        Module::from_bytes(&file).map_err(|error| CompileError::Llvm(format!("artifact refused: {error}")))
    }

    fn compile_text(&self, module: &mut QuoteWat<'_>) -> Result<Module, Stop> {
        let wasm = module.encode().map_err(|error| Stop::Failed(error.message()))?;
        self.compile(&wasm).map_err(|error| Stop::Failed(error.to_string()))
    }

    fn instantiate(&mut self, module: &Module) -> Result<Instance, InstantiateError> {
        self.linker.instantiate(&mut self.store, module)
    }

    fn instantiate_text(&mut self, module: &mut QuoteWat<'_>) -> Result<Instance, Stop> {
        let module = self.compile_text(module)?;
        if self.settings.compile_only {
            return Err(Stop::NotRun);
        }
        self.instantiate(&module).map_err(|error| Stop::Failed(error.to_string()))
    }

    fn instantiate_named(&mut self, id: Option<Id<'_>>) -> Result<Instance, Stop> {
        let module = match id {
            Some(id) => self.modules.get(id.name()),
            None => self.last_module.as_ref(),
        };
        let module = module.ok_or_else(|| "no such module".to_owned())?.get()?;
        if self.settings.compile_only {
            return Err(Stop::NotRun);
        }
        self.instantiate(&module).map_err(|error| Stop::Failed(error.to_string()))
    }

    fn remember_instance(&mut self, id: Option<Id<'_>>, result: &Result<Instance, Stop>) {
        let named = Named::from_result(result);
        if let Some(id) = id {
            self.instances.insert(id.name().to_owned(), named.clone());
        }
        self.last_instance = Some(named);
    }

    fn instance(&self, id: Option<Id<'_>>) -> Result<Instance, Stop> {
        let instance = match id {
            Some(id) => self.instances.get(id.name()),
            None => self.last_instance.as_ref(),
        };
        instance.ok_or_else(|| "no such instance".to_owned())?.get()
    }

    /// The module is not text, not wasm, or not valid: decoding or validation refuses it. Where it would be valid with a proposal
    /// that Mote has not, the refusal says that instead.
    fn assert_refused(&self, mut module: QuoteWat<'_>, expected: &str) -> Result<(), Stop> {
        let Ok(wasm) = module.encode() else { return Ok(()) };
        match mote_compiler::validate(&wasm, &self.settings.options) {
            Err(CompileError::Invalid { .. } | CompileError::Unsupported { .. }) => Ok(()),
            Err(other) => Err(Stop::Failed(format!("expected `{expected}`, got {other}"))),
            Ok(()) => Err(Stop::Failed(format!("expected `{expected}`, it was accepted"))),
        }
    }

    fn assert_unlinkable(&mut self, mut module: QuoteWat<'_>, expected: &str) -> Result<(), Stop> {
        let module = self.compile_text(&mut module)?;
        if self.settings.compile_only {
            return Err(Stop::NotRun);
        }
        match self.instantiate(&module) {
            Err(InstantiateError::Trap(trap)) => {
                Err(Stop::Failed(format!("expected `{expected}`, trapped: {}", message(&trap))))
            }
            Err(error) if expect::message_matches(&error.to_string(), expected) => Ok(()),
            Err(error) => Err(Stop::Failed(format!("expected `{expected}`, got {error}"))),
            Ok(_) => Err(Stop::Failed(format!("expected `{expected}`, it was linked"))),
        }
    }

    // Calls.

    fn execute(&mut self, exec: WastExecute<'_>) -> Result<Ended, Stop> {
        match exec {
            WastExecute::Invoke(call) => self.invoke(&call),
            WastExecute::Get { module, global, .. } => {
                let instance = self.instance(module)?;
                match instance.get_export(&mut self.store, global) {
                    Some(Extern::Global(global)) => Ok(Ended::Returned(vec![global.get(&self.store)])),
                    _ => Err(Stop::Failed(format!("no global `{global}` is exported"))),
                }
            }
            WastExecute::Wat(module) => {
                let module = self.compile_text(&mut QuoteWat::Wat(module))?;
                if self.settings.compile_only {
                    return Err(Stop::NotRun);
                }
                match self.instantiate(&module) {
                    Ok(_) => Ok(Ended::Returned(Vec::new())),
                    Err(InstantiateError::Trap(trap)) => Ok(Ended::Trapped(trap)),
                    Err(error) => Err(Stop::Failed(error.to_string())),
                }
            }
        }
    }

    fn invoke(&mut self, call: &WastInvoke<'_>) -> Result<Ended, Stop> {
        let instance = self.instance(call.module)?;
        let Some(Extern::Func(func)) = instance.get_export(&mut self.store, call.name) else {
            return Err(Stop::Failed(format!("no function `{}` is exported", call.name)));
        };
        let arguments = call.args.iter().map(expect::argument).collect::<Result<Vec<Val>, String>>()?;
        Ok(match func.call(&mut self.store, &arguments) {
            Ok(results) => Ended::Returned(results),
            Err(trap) => Ended::Trapped(trap),
        })
    }
}

fn expect_trap(ended: Ended, expected: &str) -> Result<(), Stop> {
    match ended {
        Ended::Trapped(trap) if expect::message_matches(&message(&trap), expected) => Ok(()),
        Ended::Trapped(trap) => {
            Err(Stop::Failed(format!("expected trap `{expected}`, got `{}`", message(&trap))))
        }
        Ended::Returned(_) => Err(Stop::Failed(format!("expected trap `{expected}`, it returned"))),
    }
}

/// A trap's message without its backtrace.
fn message(trap: &Trap) -> String {
    match trap.code() {
        Some(code) => code.message().to_owned(),
        None => trap.to_string(),
    }
}
