//! Rust's standard library as a guest: it calls WASI with other rights and flags than a C library does.

use std::collections::HashMap;
use std::fs::{self, File, OpenOptions};
use std::io::{self, BufRead, Read, Seek, SeekFrom, Write};
use std::time::{Duration, Instant, SystemTime};

fn main() {
    let args: Vec<String> = std::env::args().collect();
    assert_eq!(args, ["std.wasm", "argument"]);
    assert_eq!(std::env::var("KEY").as_deref(), Ok("value"));
    files().unwrap();
    directories().unwrap();
    let start = Instant::now();
    std::thread::sleep(Duration::from_millis(10));
    assert!(start.elapsed() >= Duration::from_millis(10));
    assert!(SystemTime::now() > SystemTime::UNIX_EPOCH + Duration::from_secs(1_600_000_000));
    // Seeded from random_get.
    let map: HashMap<u32, u32> = (0..100).map(|key| (key, key * key)).collect();
    assert_eq!(map[&9], 81);
    let lines: Vec<String> = io::stdin().lock().lines().collect::<Result<_, _>>().unwrap();
    assert_eq!(lines, ["in", "put"]);
    println!("std ok");
    std::process::exit(9);
}

fn files() -> io::Result<()> {
    fs::write("/file", "hello")?;
    assert_eq!(fs::read_to_string("/file")?, "hello");
    let mut file = OpenOptions::new().append(true).open("/file")?;
    file.write_all(b" world")?;
    assert_eq!(fs::metadata("/file")?.len(), 11);
    let mut file = OpenOptions::new().read(true).write(true).open("/file")?;
    file.seek(SeekFrom::End(-5))?;
    let mut end = String::new();
    file.read_to_string(&mut end)?;
    assert_eq!(end, "world");
    file.set_len(5)?;
    file.rewind()?;
    assert_eq!(io::read_to_string(&file)?, "hello");
    let error = File::open("/gone").unwrap_err();
    assert_eq!(error.kind(), io::ErrorKind::NotFound);
    let error = File::create_new("/file").unwrap_err();
    assert_eq!(error.kind(), io::ErrorKind::AlreadyExists);
    assert!(fs::write("/ro/file", "x").is_err());
    fs::copy("/file", "/copy")?;
    assert_eq!(fs::read("/copy")?, b"hello");
    let time = SystemTime::UNIX_EPOCH + Duration::from_secs(5000);
    file.set_modified(time)?;
    assert_eq!(file.metadata()?.modified()?, time);
    fs::remove_file("/copy")
}

fn directories() -> io::Result<()> {
    fs::create_dir_all("/a/b/c")?;
    for index in 0..300 {
        fs::write(format!("/a/b/file-{index}"), index.to_string())?;
    }
    let mut names: Vec<String> =
        fs::read_dir("/a/b")?.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    assert_eq!(names.len(), 301);
    fs::rename("/a/b/file-7", "/a/seven")?;
    assert_eq!(fs::read_to_string("/a/seven")?, "7");
    fs::hard_link("/a/seven", "/a/again")?;
    fs::remove_dir_all("/a")?;
    assert!(!fs::exists("/a")?);
    Ok(())
}
