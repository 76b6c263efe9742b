//! From a module to its artifact: the whole way.

use std::fs::File;
use std::path::{Path, PathBuf};

use mote_artifact::Artifact;

use crate::compile::Compiler;
use crate::directory::{Directory, Found};
use crate::error::StoreError;
use crate::evict::{Entry, Pruned};
use crate::key::{Options, entry_name, link_name};
use crate::location::Settings;
use crate::lock::EntryLock;
use crate::memory_file;
use crate::module::{Identity, Module, now_ns};

/// What happens on the way, for a person who waits.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// The artifact is not kept, and why.
    Uncached(String),
    /// An entry was refused, and why; it is compiled again.
    Rebuild(String),
    /// Another process compiles this module; this one waits for it.
    Waiting,
    /// The compiler starts.
    Compiling,
    /// The compiler works.
    Progress {
        /// So much is done.
        done: u64,
        /// Out of so much.
        total: u64,
    },
    /// The compiler has ended well.
    Compiled,
}

/// Why a loader does not take a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// The file is damaged, of another version or for another CPU: compiling again helps.
    Unfit(String),
    /// The file cannot be mapped as code where it is (a file system mounted `noexec`): a copy in memory helps.
    Unmappable(String),
}

impl Refusal {
    fn into_message(self) -> String {
        match self {
            Self::Unfit(why) | Self::Unmappable(why) => why,
        }
    }
}

/// The store.
#[derive(Debug)]
pub struct Store {
    directory: Option<Directory>,
    without: Option<String>,
    capacity_bytes: u64,
    program: Option<PathBuf>,
}

type Events<'a> = &'a mut dyn FnMut(Event);
type Load<'a, T> = &'a mut dyn FnMut(&File) -> Result<T, Refusal>;

impl Store {
    /// Opens the directory of the settings. One that cannot be used is no error here: everything then stays in memory.
    pub fn open(settings: &Settings) -> Self {
        let (directory, without) = match settings.directory.as_deref().map(Directory::open) {
            Some(Ok(directory)) => (Some(directory.with_clock(settings.now_seconds)), None),
            Some(Err(why)) => (None, Some(why)),
            None => (None, settings.without.clone()),
        };
        Self {
            directory,
            without,
            capacity_bytes: settings.capacity_bytes,
            program: settings.program.clone(),
        }
    }

    /// Gives the artifact of a module that the index knows, without opening the module. `None` says only that [`Self::obtain`] has to look: most
    /// starts end here, after four system calls.
    pub fn indexed<T>(
        &self,
        module: &Path,
        options: &Options,
        load: impl FnOnce(File) -> Option<T>,
    ) -> Option<T> {
        let directory = self.directory.as_ref()?;
        let identity = Identity::of_path(module)?;
        let compiler = Compiler::find_for(self.program.as_deref()).ok()?;
        match directory.linked(&link_name(&identity, compiler.identity(), options)) {
            Found::Entry(file) => load(file),
            Found::Nothing | Found::Refused(_) => None,
        }
    }

    /// Gives the module's artifact as `load` made it from the file, compiling when it must.
    ///
    /// `load` is the judge of contents: it gets the open file of an entry, of a fresh compile, or one in memory.
    pub fn obtain<T>(
        &self,
        module: Module,
        options: &Options,
        load: Load<'_, T>,
        events: Events<'_>,
    ) -> Result<T, StoreError> {
        let compiler = Compiler::find_for(self.program.as_deref())?;
        self.obtain_with(&compiler, module, options, load, events)
    }

    /// The same with a compiler of the caller's choice.
    pub fn obtain_with<T>(
        &self,
        compiler: &Compiler,
        module: Module,
        options: &Options,
        load: Load<'_, T>,
        events: Events<'_>,
    ) -> Result<T, StoreError> {
        let Some(directory) = &self.directory else {
            return self.uncached(compiler, &module, options, load, events, self.without.clone());
        };
        let link = module.identity().map(|identity| link_name(identity, compiler.identity(), options));
        // Nothing read of the module.
        if let Some(Found::Entry(file)) = link.as_deref().map(|link| directory.linked(link))
            && let Ok(loaded) = load(&file)
        {
            return Ok(loaded);
        }
        let link = link.filter(|_| module.identity().is_some_and(|identity| identity.is_settled(now_ns())));
        let module = module.settled()?;
        let name = entry_name(&module.sha256()?, &compiler.sha256()?, options);
        let index = |name: &str| {
            if let Some(link) = link.as_deref().filter(|_| module.is_unchanged()) {
                directory.link(link, name);
            }
        };
        if let Found::Entry(file) = directory.entry(&name)
            && let Ok(loaded) = load_or_copy(&file, load, events)
        {
            index(&name);
            return Ok(loaded);
        }
        let lock = match EntryLock::acquire(directory, &name, &mut || events(Event::Waiting)) {
            Ok(lock) => lock,
            Err(error) => {
                let why = Some(format!("cannot write to the cache: {error}"));
                return self.uncached(compiler, &module, options, load, events, why);
            }
        };
        // Another process may have made it meanwhile; what is there and unfit, nobody else is replacing now.
        let unfit = match directory.entry(&name) {
            Found::Entry(file) => match load_or_copy(&file, load, events) {
                Ok(loaded) => {
                    index(&name);
                    return Ok(loaded);
                }
                Err(why) => Some(why),
            },
            Found::Refused(why) => Some(why),
            Found::Nothing => None,
        };
        if let Some(why) = unfit {
            events(Event::Rebuild(why));
            directory.remove(&name);
        }
        let artifact = compile(compiler, &module, options, events)?;
        if let Err(error) = directory.publish(&name, &artifact) {
            events(Event::Uncached(format!("cannot write to the cache: {error}")));
            return fresh(&artifact, &module, load);
        }
        drop(lock);
        let loaded = match directory.entry(&name) {
            Found::Entry(file) => match whole(&file).and_then(|()| load_or_copy(&file, load, events)) {
                Ok(loaded) => loaded,
                Err(message) => {
                    directory.remove(&name);
                    return Err(StoreError::Unloadable { module: module.name(), message });
                }
            },
            // Evicted or cleared in this very moment.
            _ => fresh(&artifact, &module, load)?,
        };
        index(&name);
        // Failing to evict is the next one's to mend.
        let _ = directory.prune(self.capacity_bytes, Some(&name));
        Ok(loaded)
    }

    fn uncached<T>(
        &self,
        compiler: &Compiler,
        module: &Module,
        options: &Options,
        load: Load<'_, T>,
        events: Events<'_>,
        why: Option<String>,
    ) -> Result<T, StoreError> {
        if let Some(why) = why {
            events(Event::Uncached(why));
        }
        let artifact = compile(compiler, module, options, events)?;
        fresh(&artifact, module, load)
    }

    /// All entries, most recently used first.
    pub fn entries(&self) -> Result<Vec<Entry>, StoreError> {
        self.usable()?.entries().map_err(|source| StoreError::System { what: "list the cache", source })
    }

    /// An entry's file, when it is there and nobody else's.
    pub fn entry(&self, name: &str) -> Option<File> {
        match self.directory.as_ref()?.entry(name) {
            Found::Entry(file) => Some(file),
            _ => None,
        }
    }

    /// Evicts down to this many bytes (the store's capacity when absent), and sweeps up what died processes left.
    pub fn prune(&self, capacity_bytes: Option<u64>) -> Result<Pruned, StoreError> {
        self.usable()?
            .prune(capacity_bytes.unwrap_or(self.capacity_bytes), None)
            .map_err(|source| StoreError::System { what: "prune the cache", source })
    }

    /// Deletes everything.
    pub fn clear(&self) -> Result<Pruned, StoreError> {
        self.usable()?.clear().map_err(|source| StoreError::System { what: "clear the cache", source })
    }

    fn usable(&self) -> Result<&Directory, StoreError> {
        self.directory.as_ref().ok_or_else(|| StoreError::Unusable {
            reason: self.without.clone().unwrap_or_else(|| "there is no cache".to_owned()),
        })
    }
}

fn compile(
    compiler: &Compiler,
    module: &Module,
    options: &Options,
    events: Events<'_>,
) -> Result<File, StoreError> {
    events(Event::Compiling);
    let artifact =
        compiler.compile(module, options, &mut |done, total| events(Event::Progress { done, total }))?;
    if !module.is_unchanged() {
        return Err(StoreError::Changed { module: module.name() });
    }
    events(Event::Compiled);
    Ok(artifact)
}

/// Loads what was just compiled from memory.
fn fresh<T>(artifact: &File, module: &Module, load: Load<'_, T>) -> Result<T, StoreError> {
    whole(artifact)
        .and_then(|()| load(artifact).map_err(Refusal::into_message))
        .map_err(|message| StoreError::Unloadable { module: module.name(), message })
}

/// Reads all of a new artifact once: later starts look at its header and tables only, not at its code.
fn whole(artifact: &File) -> Result<(), String> {
    match Artifact::open_to_inspect(artifact) {
        Ok(artifact) => artifact.verify_contents().map_err(|error| error.to_string()),
        // What it is instead is the loader's to say.
        Err(_) => Ok(()),
    }
}

/// Loads an entry, from a copy in memory if it must be.
fn load_or_copy<T>(file: &File, load: Load<'_, T>, events: Events<'_>) -> Result<T, String> {
    match load(file) {
        Ok(loaded) => Ok(loaded),
        Err(Refusal::Unfit(why)) => Err(why),
        Err(Refusal::Unmappable(why)) => {
            let copied = memory_file::create("mote-artifact").and_then(|mut memory| {
                std::io::copy(&mut &*file, &mut memory)?;
                memory_file::seal(&memory)?;
                Ok(memory)
            });
            let memory = copied.map_err(|error| error.to_string())?;
            let loaded = load(&memory).map_err(Refusal::into_message)?;
            events(Event::Uncached(format!("code cannot be mapped from the cache: {why}")));
            Ok(loaded)
        }
    }
}
