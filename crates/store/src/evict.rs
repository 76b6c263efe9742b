//! Keeping the store within its size, and telling what is in it.

use std::io;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use rustix::fs::{AtFlags, Dir, FileType};

use crate::directory::{Directory, TEMPORARY_PREFIX};
use crate::key::is_entry_name;
use crate::limits::{INDEX_LINKS, KEEP_PERCENT, STALE_SECONDS};
use crate::lock::{EntryLock, LOCK_PREFIX};
use crate::module::{LINK_PREFIX, now_ns};

/// An artifact in the store.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// Its name: hex SHA-256 over module, compiler, options and CPU.
    pub name: String,
    /// Its size, in bytes.
    pub bytes: u64,
    /// When it was last used, to within a day.
    pub last_used: SystemTime,
}

/// What a pruning deleted and left.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Pruned {
    /// Entries deleted.
    pub deleted: u64,
    /// Their bytes.
    pub deleted_bytes: u64,
    /// Entries left.
    pub kept: u64,
    /// Their bytes.
    pub kept_bytes: u64,
}

struct Listed {
    name: String,
    kind: FileType,
    bytes: u64,
    modified_seconds: i64,
}

impl Directory {
    /// All entries, most recently used first.
    pub fn entries(&self) -> io::Result<Vec<Entry>> {
        let mut listed: Vec<_> = self.list()?.into_iter().filter(Listed::is_entry).collect();
        listed.sort_by(|a, b| b.modified_seconds.cmp(&a.modified_seconds).then_with(|| a.name.cmp(&b.name)));
        Ok(listed
            .into_iter()
            .map(|Listed { name, bytes, modified_seconds, .. }| {
                let since = Duration::from_secs(u64::try_from(modified_seconds).unwrap_or(0));
                Entry { name, bytes, last_used: UNIX_EPOCH + since }
            })
            .collect())
    }

    /// Deletes the least recently used entries once they are more than `capacity_bytes` together, except `keep`; and what
    /// died processes left. A running guest keeps what it has mapped.
    pub fn prune(&self, capacity_bytes: u64, keep: Option<&str>) -> io::Result<Pruned> {
        let listed = self.list()?;
        self.sweep(&listed);
        let mut entries: Vec<_> = listed.into_iter().filter(Listed::is_entry).collect();
        let total: u64 = entries.iter().map(|entry| entry.bytes).sum();
        let mut pruned = Pruned { kept: entries.len() as u64, kept_bytes: total, ..Pruned::default() };
        if total <= capacity_bytes {
            return Ok(pruned);
        }
        let target = capacity_bytes / 100 * KEEP_PERCENT;
        entries.sort_by_key(|entry| entry.modified_seconds);
        for entry in entries.iter().filter(|entry| Some(entry.name.as_str()) != keep) {
            if pruned.kept_bytes <= target {
                break;
            }
            self.remove(&entry.name);
            pruned.deleted += 1;
            pruned.deleted_bytes += entry.bytes;
            pruned.kept -= 1;
            pruned.kept_bytes -= entry.bytes;
        }
        Ok(pruned)
    }

    /// Temporary and lock files of processes that died, and index links when there are too many.
    fn sweep(&self, listed: &[Listed]) {
        let now_seconds = i64::try_from(now_ns() / 1_000_000_000).unwrap_or(i64::MAX);
        let stale = |file: &&Listed| now_seconds.saturating_sub(file.modified_seconds) > STALE_SECONDS;
        for file in listed.iter().filter(|file| file.kind == FileType::RegularFile).filter(stale) {
            if file.name.starts_with(TEMPORARY_PREFIX) {
                self.remove(&file.name);
            } else if file.name.starts_with(LOCK_PREFIX) {
                drop(EntryLock::take_over(self, &file.name));
            }
        }
        let mut links: Vec<_> = listed
            .iter()
            .filter(|file| file.kind == FileType::Symlink && file.name.starts_with(LINK_PREFIX))
            .collect();
        if links.len() > INDEX_LINKS {
            links.sort_by_key(|link| link.modified_seconds);
            for link in links.iter().take(links.len() - INDEX_LINKS / 2) {
                self.remove(&link.name);
            }
        }
    }

    /// Deletes every entry and link.
    pub fn clear(&self) -> io::Result<Pruned> {
        let mut pruned = Pruned::default();
        for file in self.list()? {
            if file.is_entry() {
                pruned.deleted += 1;
                pruned.deleted_bytes += file.bytes;
            }
            if is_entry_name(file.name.as_bytes()) || file.name.starts_with(LINK_PREFIX) {
                self.remove(&file.name);
            }
        }
        Ok(pruned)
    }

    fn list(&self) -> io::Result<Vec<Listed>> {
        let mut listed = Vec::new();
        for item in Dir::read_from(self.fd())? {
            let item = item?;
            // A name that is not text is none of ours; a file that is gone by now is none at all.
            let Ok(name) = item.file_name().to_str() else { continue };
            let Ok(stat) = rustix::fs::statat(self.fd(), name, AtFlags::SYMLINK_NOFOLLOW) else { continue };
            listed.push(Listed {
                name: name.to_owned(),
                kind: FileType::from_raw_mode(stat.st_mode),
                bytes: u64::try_from(stat.st_size).unwrap_or(0),
                modified_seconds: stat.st_mtime,
            });
        }
        Ok(listed)
    }
}

impl Listed {
    fn is_entry(&self) -> bool {
        self.kind == FileType::RegularFile && is_entry_name(self.name.as_bytes())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::{self, File};
    use std::path::Path;

    fn entry(outer: &Path, digit: &str, bytes: u64, age_hours: u64) -> String {
        let name = digit.repeat(64);
        aged(outer, &name, bytes, age_hours);
        name
    }

    fn aged(outer: &Path, name: &str, bytes: u64, age_hours: u64) {
        let file = File::create(outer.join(name)).unwrap();
        file.set_len(bytes).unwrap();
        file.set_modified(SystemTime::now() - Duration::from_secs(3600 * age_hours)).unwrap();
    }

    #[test]
    fn the_least_recently_used_go_first_and_the_new_one_stays() {
        let outer = tempfile::tempdir().unwrap();
        let path = outer.path().join("store");
        let directory = Directory::open(&path).unwrap();
        let new = entry(&path, "a", 600, 100);
        let old = entry(&path, "b", 300, 90);
        let recent = entry(&path, "c", 300, 1);
        assert_eq!(directory.prune(1200, Some(&new)).unwrap().deleted, 0);
        let pruned = directory.prune(1199, Some(&new)).unwrap();
        assert_eq!(pruned, Pruned { deleted: 1, deleted_bytes: 300, kept: 2, kept_bytes: 900 });
        assert!(!path.join(&old).exists());
        let names: Vec<_> = directory.entries().unwrap().into_iter().map(|entry| entry.name).collect();
        assert_eq!(names, [recent, new], "most recently used first");
    }

    #[test]
    fn what_died_processes_left_is_swept_and_fresh_files_stay() {
        let outer = tempfile::tempdir().unwrap();
        let path = outer.path().join("store");
        let directory = Directory::open(&path).unwrap();
        for (name, age) in [("t-1", 2), ("t-2", 0), ("l-1", 2), ("l-2", 0), ("README", 2)] {
            aged(&path, name, 1, age);
        }
        directory.prune(u64::MAX, None).unwrap();
        let mut left: Vec<_> = fs::read_dir(&path).unwrap().map(|file| file.unwrap().file_name()).collect();
        left.sort();
        assert_eq!(left, ["README", "l-2", "t-2"]);
    }

    #[test]
    fn links_are_bounded() {
        let outer = tempfile::tempdir().unwrap();
        let path = outer.path().join("store");
        let directory = Directory::open(&path).unwrap();
        for i in 0..=INDEX_LINKS {
            std::os::unix::fs::symlink("x", path.join(format!("i-{i}"))).unwrap();
        }
        directory.prune(u64::MAX, None).unwrap();
        assert_eq!(fs::read_dir(&path).unwrap().count(), INDEX_LINKS / 2);
    }

    #[test]
    fn clear_deletes_entries_and_links_and_nothing_else() {
        let outer = tempfile::tempdir().unwrap();
        let path = outer.path().join("store");
        let directory = Directory::open(&path).unwrap();
        let name = entry(&path, "d", 5, 0);
        directory.link("i-1", &name);
        fs::write(path.join("README"), "").unwrap();
        let cleared = directory.clear().unwrap();
        assert_eq!((cleared.deleted, cleared.deleted_bytes), (1, 5));
        assert_eq!(fs::read_dir(&path).unwrap().count(), 1);
    }
}
