//! `mote cache`.

use std::fmt::Write as _;
use std::time::SystemTime;

use mote_artifact::Artifact;
use mote_store::{Pruned, Settings, Store};

use crate::arguments::Arguments;
use crate::exit::Failure;
use crate::inspect::printable;
use crate::output::print;
use crate::values::{bytes, shown_bytes};

pub fn main(arguments: &Arguments) -> Result<u8, Failure> {
    let [action] = arguments.operands.as_slice() else {
        return Err(Failure::usage("mote cache takes one action: list, prune, clear or dir"));
    };
    let mut max_size = None;
    for (flag, value) in &arguments.flags {
        if *flag == "max-size" {
            max_size = Some(bytes(flag, value)?);
        }
    }
    let settings = Settings::from_environment();
    if let Some(mistake) = settings.mistake {
        return Err(Failure::usage(mistake));
    }
    if action == "dir" {
        return match settings.directory {
            Some(directory) => print(&format!("{}\n", directory.display())).map(|()| 0),
            None => Err(Failure::own(settings.without.unwrap_or_default())),
        };
    }
    if max_size.is_some() && action != "prune" {
        return Err(Failure::usage("--max-size goes with mote cache prune"));
    }
    let store = Store::open(&settings);
    match action.to_str() {
        Some("list") => print(&list(&store)?),
        Some("prune") => print(&deleted(store.prune(max_size)?)),
        Some("clear") => print(&deleted(store.clear()?)),
        _ => Err(Failure::usage(format!(
            "unknown action {}; there are list, prune, clear and dir",
            action.display()
        ))),
    }?;
    Ok(0)
}

fn list(store: &Store) -> Result<String, Failure> {
    let now = SystemTime::now();
    let entries = store.entries()?;
    let mut text = String::new();
    for entry in &entries {
        let days = now.duration_since(entry.last_used).map_or(0, |age| age.as_secs() / (24 * 60 * 60));
        let used = match days {
            0 => "today".to_owned(),
            1 => "yesterday".to_owned(),
            days => format!("{days} days ago"),
        };
        let short = entry.name.get(..16).unwrap_or(&entry.name);
        let _ = writeln!(
            text,
            "{short}  {:>10}  used {used:<14}{}",
            shown_bytes(entry.bytes),
            about(store, &entry.name)
        );
    }
    let total = entries.iter().map(|entry| entry.bytes).sum();
    let _ = writeln!(text, "{} entries, {}", entries.len(), shown_bytes(total));
    Ok(text)
}

/// What the entry says about itself.
fn about(store: &Store, name: &str) -> String {
    let Some(file) = store.entry(name) else {
        return "unfit: will be compiled again when it is asked for".to_owned();
    };
    match Artifact::open_to_inspect(&file) {
        Ok(artifact) => {
            let sha256: String =
                artifact.wasm_sha256().iter().take(6).map(|byte| format!("{byte:02x}")).collect();
            let name =
                if artifact.name().is_empty() { "(no name)".to_owned() } else { printable(artifact.name()) };
            format!("{name} (wasm {sha256}…) {}", printable(artifact.options()))
        }
        Err(error) => format!("unfit: {error}"),
    }
}

fn deleted(pruned: Pruned) -> String {
    let Pruned { deleted, deleted_bytes, kept, kept_bytes } = pruned;
    format!(
        "deleted {deleted} entries, {}; kept {kept} entries, {}\n",
        shown_bytes(deleted_bytes),
        shown_bytes(kept_bytes)
    )
}
