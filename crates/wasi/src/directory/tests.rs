use std::collections::HashSet;
use std::os::unix::ffi::OsStrExt;

use crate::testing::{DIR, Guest, MEMORY_BYTES, READ, errno};
use crate::witx::oflags;
use crate::{Errno, GuestMemory};

struct Entry {
    next: u64,
    ino: u64,
    filetype: u8,
    name: Vec<u8>,
}

/// One call: the whole entries, and whether the buffer was full.
fn readdir(guest: &mut Guest, fd: u32, buf_len: u32, cookie: u64) -> (Vec<Entry>, bool) {
    let buf = MEMORY_BYTES as u32 - buf_len;
    guest.ctx.fd_readdir(guest.memory.as_mut_slice(), fd, buf, buf_len, cookie, 0).unwrap();
    let used = guest.u32_at(0);
    let mut entries = Vec::new();
    let mut at = buf;
    while at + 24 <= buf + used {
        let len = guest.u32_at(at + 16);
        if at + 24 + len > buf + used {
            break;
        }
        entries.push(Entry {
            next: guest.u64_at(at),
            ino: guest.u64_at(at + 8),
            filetype: guest.memory.read_u8(at + 20).unwrap(),
            name: guest.memory[(at + 24) as usize..][..len as usize].to_vec(),
        });
        at += 24 + len;
    }
    (entries, used == buf_len)
}

fn all(guest: &mut Guest, fd: u32, buf_len: u32) -> Vec<Entry> {
    let mut cookie = 0;
    let mut every = Vec::new();
    loop {
        let (entries, full) = readdir(guest, fd, buf_len, cookie);
        assert!(!entries.is_empty() || !full, "a buffer that holds no entry makes no progress");
        cookie = entries.last().map_or(cookie, |entry| entry.next);
        every.extend(entries);
        if !full {
            return every;
        }
    }
}

#[test]
fn many_entries_are_listed_once_each_whatever_the_buffer() {
    let mut guest = Guest::new();
    let names: HashSet<Vec<u8>> =
        (0..2000).map(|index| format!("file-{index:04}{}", "x".repeat(index % 40)).into_bytes()).collect();
    for name in &names {
        std::fs::write(guest.dir.path().join(std::ffi::OsStr::from_bytes(name)), b"").unwrap();
    }
    guest.mkdir("dir").unwrap();
    guest.symlink("dir", "link").unwrap();
    let fd = guest.open(".", oflags::DIRECTORY, READ).unwrap();
    for buf_len in [300, 4096, 100_000, 500_000] {
        let entries = all(&mut guest, fd, buf_len);
        assert_eq!(entries.len(), 2004, "{buf_len}");
        let kind = |name: &[u8]| entries.iter().find(|entry| entry.name == name).unwrap().filetype;
        assert_eq!([kind(b"."), kind(b".."), kind(b"dir"), kind(b"link")], [3, 3, 3, 7]);
        assert_eq!(entries.iter().filter(|entry| names.contains(&entry.name)).count(), 2000);
        let dir = entries.iter().find(|entry| entry.name == b"dir").unwrap().ino;
        assert_eq!(dir, guest.stat("dir", true).unwrap().2);
    }
}

#[test]
fn cookies_stay_valid_while_entries_go() {
    let mut guest = Guest::new();
    for index in 0..500 {
        guest.create(&format!("f{index}"), b"");
    }
    let (first, full) = readdir(&mut guest, DIR, 4096, 0);
    assert!(full);
    let cookie = first[first.len() / 2].next;
    let (rest, _) = readdir(&mut guest, DIR, 400_000, cookie);
    for entry in &first {
        if entry.name.starts_with(b"f") {
            guest.unlink(std::str::from_utf8(&entry.name).unwrap()).unwrap();
        }
    }
    let seen: HashSet<Vec<u8>> = first.iter().map(|entry| entry.name.clone()).collect();
    let (again, _) = readdir(&mut guest, DIR, 400_000, cookie);
    let names = |entries: &[Entry]| -> HashSet<Vec<u8>> {
        entries.iter().map(|entry| entry.name.clone()).filter(|name| !seen.contains(name)).collect()
    };
    assert_eq!(names(&again), names(&rest), "what was not yet listed is listed all the same");
}

#[test]
fn the_last_entry_is_cut_where_the_buffer_ends() {
    let mut guest = Guest::new();
    guest.create("some-file-with-a-name", b"");
    for buf_len in 1..80 {
        guest.memory[1024..1200].fill(0xee);
        guest.ctx.fd_readdir(guest.memory.as_mut_slice(), DIR, 1024, buf_len, 0, 0).unwrap();
        assert_eq!(guest.u32_at(0), buf_len);
        assert!(guest.memory[1024 + buf_len as usize..1200].iter().all(|byte| *byte == 0xee));
    }
    guest.ctx.fd_readdir(guest.memory.as_mut_slice(), DIR, 1024, 0, 0, 0).unwrap();
    assert_eq!(guest.u32_at(0), 0);
}

#[test]
fn names_that_are_not_utf8_are_left_out() {
    let mut guest = Guest::new();
    guest.create("good", b"");
    std::fs::write(guest.dir.path().join(std::ffi::OsStr::from_bytes(b"bad\xff")), b"").unwrap();
    let names: HashSet<Vec<u8>> = all(&mut guest, DIR, 4096).into_iter().map(|entry| entry.name).collect();
    assert_eq!(names, HashSet::from([b".".to_vec(), b"..".to_vec(), b"good".to_vec()]));
}

#[test]
fn hostile_calls_are_refused() {
    let mut guest = Guest::new();
    guest.create("file", b"");
    let file = guest.open("file", 0, READ).unwrap();
    let end = MEMORY_BYTES as u32;
    let (ctx, memory) = (&guest.ctx, guest.memory.as_mut_slice());
    assert_eq!(errno(ctx.fd_readdir(memory, file, 0, 100, 0, 0)), Errno::NotDir);
    assert_eq!(errno(ctx.fd_readdir(memory, DIR, end - 99, 100, 0, 0)), Errno::Fault);
    assert_eq!(errno(ctx.fd_readdir(memory, DIR, 8, u32::MAX, 0, 0)), Errno::Fault);
    assert_eq!(errno(ctx.fd_readdir(memory, DIR, 0, 100, 0, end - 3)), Errno::Fault);
    assert_eq!(errno(ctx.fd_readdir(memory, DIR, 0, 100, u64::MAX, 0)), Errno::Inval);
    // A cookie that was never given: an error or some entries, never more than that.
    let _ = ctx.fd_readdir(memory, DIR, 8, 100, 0x7fff_ffff_ffff_fff0, 0);
    ctx.fd_readdir(memory, DIR, 8, 4096, 0, 0).unwrap();
    assert!(memory.read_u32(0).unwrap() > 24);
}
