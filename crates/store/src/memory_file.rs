//! Files that exist in memory only.

use std::fs::File;
use std::io;

use rustix::fs::{MemfdFlags, SealFlags};

/// A new, empty one. `/proc/PID/maps` shows its name.
pub fn create(name: &str) -> io::Result<File> {
    let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
    Ok(File::from(rustix::fs::memfd_create(name, flags)?))
}

/// From now on nobody can change it, the process that wrote it included: it is mapped as code.
pub fn seal(file: &File) -> io::Result<()> {
    let seals = SealFlags::WRITE | SealFlags::SHRINK | SealFlags::GROW;
    Ok(rustix::fs::fcntl_add_seals(file, seals)?)
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    #[test]
    fn a_sealed_file_takes_no_writes() {
        let mut file = super::create("test").unwrap();
        file.write_all(b"code").unwrap();
        super::seal(&file).unwrap();
        assert!(file.write_all(b"more").is_err());
        assert!(file.set_len(0).is_err());
    }
}
