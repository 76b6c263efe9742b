use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileTypeExt, MetadataExt, symlink};
use std::sync::atomic::{AtomicBool, Ordering};

use crate::Errno;
use crate::testing::{DIR, Guest, MEMORY_BYTES, READ, WRITE, errno};
use crate::witx::{Abi, fdflags, fstflags, oflags, rights};

const END: u32 = MEMORY_BYTES as u32;

#[test]
fn paths_go_through_dots_and_slashes() {
    for mut guest in Guest::both() {
        guest.mkdir("dir").unwrap();
        guest.mkdir("dir/nested/").unwrap();
        guest.create("dir/nested/file", b"x");
        for path in ["dir/.//nested/../../dir/nested/../nested///./file", "./dir/nested/file"] {
            guest.open(path, 0, READ).unwrap();
            assert_eq!(guest.stat(path, true).unwrap().0, 4);
        }
        for path in ["dir/nested/", "dir/nested///", "dir/nested/.", ".", "./", "dir/.."] {
            guest.open(path, 0, READ).unwrap();
            guest.open(path, oflags::DIRECTORY, READ).unwrap();
            assert_eq!(guest.stat(path, false).unwrap().0, 3, "{path}");
        }
        for path in ["dir/nested/file/", "dir/nested/file///", "dir/nested/file/.", "dir/nested/file/x"] {
            assert_eq!(errno(guest.open(path, 0, READ)), Errno::NotDir, "{path}");
            assert_eq!(errno(guest.stat(path, true)), Errno::NotDir, "{path}");
        }
        assert_eq!(errno(guest.open("dir/nested/file", oflags::DIRECTORY, READ)), Errno::NotDir);
        assert_eq!(errno(guest.open("dir", 0, WRITE)), Errno::IsDir);
        assert_eq!(errno(guest.open("gone", 0, READ)), Errno::NoEnt);
        assert_eq!(errno(guest.open("gone/", oflags::CREAT, READ)), Errno::IsDir);
        assert_eq!(errno(guest.open("gone/x", oflags::CREAT, READ)), Errno::NoEnt);
    }
}

#[test]
fn nothing_leads_out() {
    for mut guest in Guest::both() {
        let outside = tempfile::tempdir().unwrap();
        std::fs::write(outside.path().join("secret"), b"secret").unwrap();
        let out = outside.path().to_str().unwrap().to_owned();
        let name = outside.path().file_name().unwrap().to_str().unwrap().to_owned();
        guest.mkdir("d").unwrap();
        guest.create("d/file", b"inside");
        // Links that the host's user made.
        symlink(outside.path(), guest.host("absolute")).unwrap();
        symlink(outside.path().join("secret"), guest.host("absolute-file")).unwrap();
        symlink(format!("../{name}"), guest.host("relative")).unwrap();
        symlink("..", guest.host("up")).unwrap();
        symlink("../..", guest.host("d/upup")).unwrap();
        symlink("/proc/self/root", guest.host("magic")).unwrap();
        let escapes = [
            "..".to_owned(),
            "../".to_owned(),
            "d/../..".to_owned(),
            format!("../{name}/secret"),
            format!("d/../../{name}/secret"),
            format!("{out}/secret"),
            "/".to_owned(),
            "absolute/secret".to_owned(),
            "absolute/".to_owned(),
            "relative/secret".to_owned(),
            "absolute-file".to_owned(),
            format!("up/{name}/secret"),
            format!("d/upup/{name}/secret"),
            "magic/etc/passwd".to_owned(),
        ];
        for path in &escapes {
            assert_eq!(errno(guest.open(path, 0, READ)), Errno::Perm, "open {path}");
            // The kernel may refuse to create a name with a slash behind before it looks at it.
            let created = errno(guest.open(path, oflags::CREAT, WRITE));
            assert!(
                created == Errno::Perm || created == Errno::IsDir && path.ends_with('/'),
                "create {path}"
            );
            assert_eq!(errno(guest.open(path, oflags::TRUNC, WRITE)), Errno::Perm, "truncate {path}");
            assert_eq!(errno(guest.stat(path, true)), Errno::Perm, "stat {path}");
            let times = guest.on_path(path, |ctx, memory, at, len| {
                ctx.path_filestat_set_times(memory, DIR, 1, at, len, 0, 0, fstflags::MTIM)
            });
            assert_eq!(errno(times), Errno::Perm, "set times of {path}");
        }
        // Functions that name an entry do not follow a link there, so only the way to the entry counts.
        for path in escapes.iter().filter(|path| *path != "absolute-file" && *path != "absolute/") {
            assert_eq!(errno(guest.mkdir(path)), Errno::Perm, "mkdir {path}");
            assert_eq!(errno(guest.rmdir(path)), Errno::Perm, "rmdir {path}");
            assert_eq!(errno(guest.unlink(path)), Errno::Perm, "unlink {path}");
            assert_eq!(errno(guest.rename(path, "taken")), Errno::Perm, "rename {path}");
            assert_eq!(errno(guest.rename("d/file", path)), Errno::Perm, "rename to {path}");
            assert_eq!(errno(guest.link(path, "taken")), Errno::Perm, "link {path}");
            assert_eq!(errno(guest.link("d/file", path)), Errno::Perm, "link to {path}");
            assert_eq!(errno(guest.symlink("d/file", path)), Errno::Perm, "symlink at {path}");
            assert_eq!(errno(guest.readlink(path, 100)), Errno::Perm, "readlink {path}");
            assert_eq!(errno(guest.stat(path, false)), Errno::Perm, "lstat {path}");
        }
        for path in ["absolute/", "up/", "relative/"] {
            assert_eq!(errno(guest.link(path, "taken")), Errno::Perm);
            assert_eq!(errno(guest.stat(path, false)), Errno::Perm);
            assert_eq!(errno(guest.readlink(path, 10)), Errno::Perm);
        }
        let left: Vec<_> = std::fs::read_dir(outside.path()).unwrap().collect();
        assert_eq!(left.len(), 1);
        assert_eq!(std::fs::read(outside.path().join("secret")).unwrap(), b"secret");
        assert!(!guest.host("taken").exists());
        // What a link itself is can be seen and removed.
        assert_eq!(guest.readlink("up", 100).unwrap(), b"..");
        assert_eq!(guest.stat("absolute", false).unwrap().0, 7);
        guest.unlink("absolute").unwrap();
        assert!(outside.path().exists());
    }
}

#[test]
fn a_directory_that_is_moved_away_while_paths_are_resolved_leads_nowhere() {
    for mut guest in Guest::both() {
        // The guest sees root/in; another thread moves root/in/a/b out and back while `a/b/../../x` is opened again and again:
        // a naive walk would end in root or above.
        let root = tempfile::tempdir().unwrap();
        let inside = root.path().join("in");
        std::fs::create_dir_all(inside.join("a/b/c")).unwrap();
        std::fs::write(root.path().join("x"), b"outside").unwrap();
        std::fs::write(inside.join("x"), b"inside").unwrap();
        guest.preopen_instead(&inside);
        let stop = AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                while !stop.load(Ordering::Relaxed) {
                    std::fs::rename(inside.join("a/b"), root.path().join("b")).unwrap();
                    std::fs::rename(root.path().join("b"), inside.join("a/b")).unwrap();
                }
            });
            let (mut found, mut failed) = (0, 0);
            for _ in 0..3000 {
                match guest.open("a/b/c/../../../x", 0, READ) {
                    Ok(fd) => {
                        assert_eq!(guest.read(fd, 10).unwrap(), b"inside");
                        guest.ctx.fd_close(fd).unwrap();
                        found += 1;
                    }
                    Err(error) => {
                        let allowed = [Errno::NoEnt, Errno::Perm].map(crate::Error::from);
                        assert!(allowed.contains(&error), "{error:?}");
                        failed += 1;
                    }
                }
            }
            stop.store(true, Ordering::Relaxed);
            assert!(found + failed == 3000);
        });
    }
}

#[test]
fn a_component_that_becomes_a_link_is_not_followed_out() {
    for mut guest in Guest::both() {
        let root = tempfile::tempdir().unwrap();
        let inside = root.path().join("in");
        std::fs::create_dir_all(inside.join("real")).unwrap();
        std::fs::create_dir_all(root.path().join("out")).unwrap();
        std::fs::write(root.path().join("out/file"), b"outside").unwrap();
        std::fs::write(inside.join("real/file"), b"inside").unwrap();
        symlink("../out", inside.join("link")).unwrap();
        guest.preopen_instead(&inside);
        let stop = AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                let exchange = rustix::fs::RenameFlags::EXCHANGE;
                let cwd = rustix::fs::CWD;
                while !stop.load(Ordering::Relaxed) {
                    let (a, b) = (inside.join("real"), inside.join("link"));
                    rustix::fs::renameat_with(cwd, a, cwd, b, exchange).unwrap();
                }
            });
            for round in 0..3000 {
                if let Ok(fd) = guest.open("real/file", 0, READ) {
                    assert_eq!(guest.read(fd, 10).unwrap(), b"inside");
                    guest.ctx.fd_close(fd).unwrap();
                }
                let _ = guest.mkdir(&format!("real/made{round}"));
                let _ = guest.unlink("real/file2");
            }
            stop.store(true, Ordering::Relaxed);
        });
        let outside = std::fs::read_dir(root.path().join("out")).unwrap().count();
        assert_eq!(outside, 1, "nothing was made or removed outside");
    }
}

#[test]
fn links_are_followed_inside_and_loops_end() {
    for mut guest in Guest::both() {
        guest.mkdir("d").unwrap();
        guest.mkdir("d/e").unwrap();
        guest.create("d/e/file", b"found");
        guest.symlink("d/e", "to-dir").unwrap();
        guest.symlink("to-dir/file", "to-file").unwrap();
        guest.symlink("../../to-file", "d/e/back").unwrap();
        guest.symlink("loop", "loop").unwrap();
        guest.symlink("ping", "pong").unwrap();
        guest.symlink("pong", "ping").unwrap();
        guest.symlink("nowhere", "dangling").unwrap();
        for path in ["to-file", "to-dir/file", "d/e/back", "to-dir/back", "to-dir/../e/file"] {
            let fd = guest.open(path, 0, READ).unwrap();
            assert_eq!(guest.read(fd, 10).unwrap(), b"found", "{path}");
            assert_eq!(guest.stat(path, true).unwrap().1, 5);
        }
        assert_eq!(errno(guest.open_in(DIR, "to-file", false, 0, READ, 0)), Errno::Loop);
        assert!(matches!(
            errno(guest.open_in(DIR, "to-dir", false, oflags::DIRECTORY, READ, 0)),
            Errno::Loop | Errno::NotDir
        ));
        for path in ["loop", "ping", "loop/x", "ping/x"] {
            assert_eq!(errno(guest.open(path, 0, READ)), Errno::Loop, "{path}");
            assert_eq!(errno(guest.stat(path, true)), Errno::Loop, "{path}");
        }
        assert_eq!(guest.stat("loop", false).unwrap().0, 7);
        assert_eq!(errno(guest.open("dangling", 0, READ)), Errno::NoEnt);
        let exclusive = oflags::CREAT | oflags::EXCL;
        assert_eq!(errno(guest.open("dangling", exclusive, WRITE)), Errno::Exist);
        guest.open("dangling", oflags::CREAT, WRITE).unwrap();
        assert!(guest.host("nowhere").exists(), "created through the link");
        assert_eq!(guest.readlink("to-file", 4).unwrap(), b"to-d", "cut where the buffer ends");
        assert_eq!(guest.readlink("d/e/back", 100).unwrap(), b"../../to-file");
        assert_eq!(errno(guest.readlink("d/e/file", 10)), Errno::Inval);
        assert_eq!(errno(guest.readlink("d", 10)), Errno::Inval);
        assert_eq!(errno(guest.readlink("to-dir/", 10)), Errno::Inval);
        assert_eq!(errno(guest.readlink("gone", 10)), Errno::NoEnt);
        assert_eq!(errno(guest.symlink("/etc/passwd", "new")), Errno::Perm);
        assert_eq!(errno(guest.symlink("", "new")), Errno::NoEnt);
        assert_eq!(errno(guest.symlink("x", "d")), Errno::Exist);
        assert_eq!(errno(guest.symlink("x", "new/")), Errno::NoEnt);
    }
}

#[test]
fn a_long_chain_of_links_ends_with_a_loop_error() {
    for mut guest in Guest::both() {
        guest.create("link0", b"end");
        for index in 1..50 {
            guest.symlink(&format!("link{}", index - 1), &format!("link{index}")).unwrap();
        }
        guest.open("link40", 0, READ).unwrap();
        assert_eq!(errno(guest.open("link41", 0, READ)), Errno::Loop);
    }
}

#[test]
fn hostile_paths_are_refused() {
    for mut guest in Guest::both() {
        let long = "a/".repeat(2049);
        for (path, expected) in [
            (&b""[..], Errno::NoEnt),
            (b"nul\0", Errno::Inval),
            (b"\0", Errno::Inval),
            (b"bad\xff", Errno::Ilseq),
            (b"\xed\xa0\x80", Errno::Ilseq),
            (b"/etc/passwd", Errno::Perm),
            (long.as_bytes(), Errno::NameTooLong),
            ("n".repeat(256).as_bytes(), Errno::NameTooLong),
        ] {
            let (at, len) = guest.put(path);
            let memory = guest.memory.as_mut_slice();
            let open = guest.ctx.path_open(memory, DIR, 0, at, len, oflags::CREAT, WRITE, 0, 0, 0);
            assert_eq!(errno(open), expected, "{path:?}");
            assert_eq!(errno(guest.ctx.path_create_directory(memory, DIR, at, len)), expected);
            let stat = guest.ctx.path_filestat_get(Abi::Preview1, memory, DIR, 1, at, len, 0);
            assert_eq!(errno(stat), expected);
        }
        let memory = guest.memory.as_mut_slice();
        for (at, len) in [(END - 1, 2), (END, 1), (u32::MAX, 1), (0, u32::MAX), (u32::MAX, u32::MAX)] {
            assert_eq!(errno(guest.ctx.path_unlink_file(memory, DIR, at, len)), Errno::Fault);
            let open = guest.ctx.path_open(memory, DIR, 0, at, len, 0, READ, 0, 0, 0);
            assert_eq!(errno(open), Errno::Fault);
        }
        // Every flag that does not exist.
        let (at, len) = guest.put(b"x");
        let memory = guest.memory.as_mut_slice();
        for (lookup, oflags, fdflags) in
            [(2, 0, 0), (0, 16, 0), (0, 0, 32), (u32::MAX, 0, 0), (0, 0, 1 << 20)]
        {
            let open = guest.ctx.path_open(memory, DIR, lookup, at, len, oflags, READ, 0, fdflags, 0);
            assert_eq!(errno(open), Errno::Inval);
        }
        let create = oflags::CREAT;
        let open = guest.ctx.path_open(memory, DIR, 0, at, len, create, READ, 0, 0, END - 3);
        assert_eq!(errno(open), Errno::Fault);
        assert!(!guest.host("x").exists(), "a result that has no place is refused before the file is made");
        let both = oflags::CREAT | oflags::DIRECTORY;
        assert_eq!(errno(guest.open("x", both, READ)), Errno::Inval);
        let fd = guest.open("x", oflags::CREAT, READ).unwrap();
        assert_eq!(errno(guest.open_in(fd, "y", true, 0, READ, 0)), Errno::NotDir);
        assert_eq!(errno(guest.open_in(77, "y", true, 0, READ, 0)), Errno::Badf);
    }
}

#[test]
fn files_are_created_truncated_and_refused() {
    for mut guest in Guest::both() {
        guest.create("file", b"old contents");
        let exclusive = oflags::CREAT | oflags::EXCL;
        assert_eq!(errno(guest.open("file", exclusive, WRITE)), Errno::Exist);
        guest.open("fresh", exclusive, WRITE).unwrap();
        assert_eq!(std::fs::metadata(guest.host("fresh")).unwrap().mode() & 0o111, 0);
        guest.open("file", oflags::TRUNC, WRITE).unwrap();
        assert_eq!(std::fs::read(guest.host("file")).unwrap(), b"");
        let synchronous = guest.open_in(DIR, "file", true, 0, WRITE, fdflags::SYNC.into()).unwrap();
        assert_eq!(guest.fdstat(synchronous).unwrap().1, fdflags::SYNC);
    }
}

#[test]
fn entries_are_renamed_linked_and_removed() {
    for mut guest in Guest::both() {
        guest.create("a", b"contents");
        guest.mkdir("d").unwrap();
        guest.rename("a", "d/b").unwrap();
        assert_eq!(guest.stat("d/b", false).unwrap().1, 8);
        guest.link("d/b", "hard").unwrap();
        assert_eq!(guest.stat("hard", false).unwrap().2, guest.stat("d/b", false).unwrap().2);
        assert_eq!(errno(guest.link("d/b", "hard")), Errno::Exist);
        assert_eq!(errno(guest.link("d", "dir-link")), Errno::Perm);
        assert_eq!(errno(guest.link("d/", "dir-link")), Errno::Perm);
        assert_eq!(errno(guest.link("d/b/", "x")), Errno::NotDir);
        assert_eq!(errno(guest.link("hard", "x/")), Errno::NoEnt);
        // A link is linked itself.
        symlink("gone", guest.host("sym")).unwrap();
        guest.link("sym", "sym2").unwrap();
        assert_eq!(guest.readlink("sym2", 10).unwrap(), b"gone");
        let (new, new_len) = guest.put(b"x");
        let followed = guest
            .on_path("sym", |ctx, memory, at, len| ctx.path_link(memory, DIR, 1, at, len, DIR, new, new_len));
        assert_eq!(errno(followed), Errno::Inval);
        guest.mkdir("e").unwrap();
        guest.rename("e/", "f").unwrap();
        guest.rename("f", "g/").unwrap();
        guest.rename("g/", "h/").unwrap();
        assert_eq!(errno(guest.rename("h", "d")), Errno::NotEmpty);
        assert_eq!(errno(guest.rename("hard", "h")), Errno::IsDir);
        assert_eq!(errno(guest.rename("h", "hard")), Errno::NotDir);
        assert_eq!(errno(guest.rename("hard/", "z")), Errno::NotDir);
        assert_eq!(errno(guest.rename("d", "d/sub")), Errno::Inval);
        assert_eq!(errno(guest.rmdir("d")), Errno::NotEmpty);
        assert_eq!(errno(guest.rmdir("hard")), Errno::NotDir);
        assert_eq!(errno(guest.unlink("d")), Errno::IsDir);
        assert_eq!(errno(guest.unlink("hard/")), Errno::NotDir);
        assert_eq!(errno(guest.rmdir(".")), Errno::Inval);
        assert_eq!(errno(guest.unlink("d/..")), Errno::IsDir);
        guest.unlink("d/b").unwrap();
        guest.rmdir("d/").unwrap();
        guest.unlink("hard").unwrap();
        assert_eq!(errno(guest.mkdir("h")), Errno::Exist);
        assert_eq!(errno(guest.mkdir("no/such")), Errno::NoEnt);
        // A link with a slash behind is the directory it leads to, for rmdir it is none.
        guest.symlink("h", "to-h").unwrap();
        assert_eq!(errno(guest.rmdir("to-h/")), Errno::NotDir);
        guest.rmdir("h").unwrap();
    }
}

#[test]
fn rights_of_two_directories_count_in_calls_that_take_two() {
    let other = tempfile::tempdir().unwrap();
    let mut guest = Guest::with(|builder| {
        builder.preopen(other.path(), "/ro", true);
    });
    guest.create("file", b"x");
    std::fs::write(other.path().join("there"), b"y").unwrap();
    let (old, old_len) = guest.put(b"file");
    let (new, new_len) = guest.put(b"new");
    let memory = guest.memory.as_mut_slice();
    assert_eq!(errno(guest.ctx.path_rename(memory, DIR, old, old_len, 4, new, new_len)), Errno::Rofs);
    assert_eq!(errno(guest.ctx.path_link(memory, DIR, 0, old, old_len, 4, new, new_len)), Errno::Rofs);
    let (there, there_len) = guest.put(b"there");
    let memory = guest.memory.as_mut_slice();
    let stolen = guest.ctx.path_rename(memory, 4, there, there_len, DIR, new, new_len);
    assert_eq!(errno(stolen), Errno::Rofs);
    // A link in a writable directory to a file of a read-only one would make it writable.
    let linked = guest.ctx.path_link(memory, 4, 0, there, there_len, DIR, new, new_len);
    assert_eq!(errno(linked), Errno::Rofs);
}

#[test]
fn a_read_only_preopen_cannot_be_changed() {
    let shared = tempfile::tempdir().unwrap();
    std::fs::create_dir(shared.path().join("d")).unwrap();
    std::fs::write(shared.path().join("d/file"), b"text").unwrap();
    let mut guest = Guest::with(|builder| {
        builder.preopen(shared.path(), "/ro", true);
    });
    // Through the preopen, and through a directory opened beneath it.
    let nested = guest.open_in(4, "d", true, oflags::DIRECTORY, READ, 0).unwrap();
    for (dir, prefix) in [(4, "d/"), (nested, "")] {
        let file = format!("{prefix}file");
        let fd = guest.open_in(dir, &file, true, 0, READ, 0).unwrap();
        assert_eq!(guest.read(fd, 10).unwrap(), b"text");
        assert_eq!(errno(guest.write(fd, b"x")), Errno::Badf);
        assert_eq!(errno(guest.ctx.fd_filestat_set_size(fd, 0)), Errno::Badf);
        assert_eq!(errno(guest.ctx.fd_allocate(fd, 0, 10)), Errno::Badf);
        assert_eq!(errno(guest.ctx.fd_filestat_set_times(fd, 0, 0, fstflags::MTIM)), Errno::Rofs);
        guest.open_in(dir, &file, true, oflags::CREAT, READ, 0).unwrap();
        let exclusive = oflags::CREAT | oflags::EXCL;
        assert_eq!(errno(guest.open_in(dir, &file, true, exclusive, READ, 0)), Errno::Exist);
        for (path, oflags, rights) in [
            (&*file, 0, WRITE),
            (&*file, 0, READ | WRITE),
            (&*file, oflags::TRUNC, READ),
            (&*file, 0, rights::FD_ALLOCATE),
            ("new", oflags::CREAT, READ),
            ("new", oflags::CREAT, WRITE),
        ] {
            assert_eq!(errno(guest.open_in(dir, path, true, oflags, rights, 0)), Errno::Rofs);
        }
        let (at, len) = guest.put(file.as_bytes());
        let (new, new_len) = guest.put(b"new");
        let (ctx, memory) = (&guest.ctx, guest.memory.as_mut_slice());
        assert_eq!(errno(ctx.path_create_directory(memory, dir, new, new_len)), Errno::Rofs);
        assert_eq!(errno(ctx.path_remove_directory(memory, dir, at, len)), Errno::Rofs);
        assert_eq!(errno(ctx.path_unlink_file(memory, dir, at, len)), Errno::Rofs);
        assert_eq!(errno(ctx.path_symlink(memory, at, len, dir, new, new_len)), Errno::Rofs);
        assert_eq!(errno(ctx.path_rename(memory, dir, at, len, dir, new, new_len)), Errno::Rofs);
        assert_eq!(errno(ctx.path_link(memory, dir, 0, at, len, dir, new, new_len)), Errno::Rofs);
        let times = ctx.path_filestat_set_times(memory, dir, 0, at, len, 0, 0, fstflags::MTIM);
        assert_eq!(errno(times), Errno::Rofs);
        ctx.path_filestat_get(Abi::Preview1, memory, dir, 0, at, len, 0).unwrap();
    }
    assert_eq!(std::fs::read(shared.path().join("d/file")).unwrap(), b"text");
    assert_eq!(std::fs::read_dir(shared.path()).unwrap().count(), 1);
}

#[test]
fn times_are_set_by_name_on_a_file_or_on_a_link_itself() {
    for mut guest in Guest::both() {
        guest.create("file", b"");
        guest.symlink("file", "link").unwrap();
        let mut set = |follow: u32, path: &str, seconds: u64| {
            guest.on_path(path, |ctx, memory, at, len| {
                let time = seconds * 1_000_000_000 + 5;
                ctx.path_filestat_set_times(memory, DIR, follow, at, len, 0, time, fstflags::MTIM)
            })
        };
        set(1, "link", 1000).unwrap();
        set(0, "link", 2000).unwrap();
        assert_eq!(errno(set(0, "gone", 1)), Errno::NoEnt);
        let file = std::fs::metadata(guest.host("file")).unwrap();
        let link = std::fs::symlink_metadata(guest.host("link")).unwrap();
        assert_eq!((file.mtime(), file.mtime_nsec(), link.mtime()), (1000, 5, 2000));
    }
}

#[test]
fn devices_and_sockets_are_told_apart() {
    for mut guest in Guest::both() {
        let _socket = std::os::unix::net::UnixListener::bind(guest.host("socket")).unwrap();
        assert!(std::fs::metadata(guest.host("socket")).unwrap().file_type().is_socket());
        assert_eq!(guest.stat("socket", true).unwrap().0, 6);
        assert_eq!(errno(guest.open("socket", 0, READ)), Errno::Nxio);
    }
    let mut guest = Guest::new();
    guest.preopen_instead("/dev");
    let fd = guest.open("null", 0, READ | WRITE).unwrap();
    assert_eq!(guest.write(fd, b"gone").unwrap(), 4);
    assert_eq!(guest.read(fd, 4).unwrap(), b"");
    let fd = guest.open("zero", 0, READ).unwrap();
    assert_eq!(guest.read(fd, 4).unwrap(), b"\0\0\0\0");
    assert_eq!(guest.fdstat(fd).unwrap().0, 2);
}

#[test]
fn a_link_to_a_name_that_is_not_utf8_cannot_be_read() {
    for mut guest in Guest::both() {
        symlink(std::ffi::OsStr::from_bytes(b"bad\xff"), guest.host("link")).unwrap();
        assert_eq!(errno(guest.readlink("link", 10)), Errno::Ilseq);
    }
}
