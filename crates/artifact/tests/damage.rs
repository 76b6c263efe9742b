//! Damaged and hostile files: each is refused with one line or read without a panic.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)]

mod sample;

use std::io::Write;

use mote_artifact::view::ItemsView;
use mote_artifact::{Artifact, LoadError, write};
use xxhash_rust::xxh3::xxh3_64;

/// Calls everything that reads.
fn read_everything(artifact: &Artifact) {
    let mut read = artifact.name().len() + artifact.compiler().len() + artifact.options().len();
    read += artifact.cpu_features().map(str::len).sum::<usize>();
    read += artifact.types().map(|ty| ty.params.iter().count() + ty.results.iter().count()).sum::<usize>();
    read += (0..artifact.type_count()).filter_map(|ty| artifact.thunks(ty)).count();
    read += artifact.imports().map(|import| import.module.len() + import.name.len()).sum::<usize>();
    read += artifact.exports().map(|export| export.name.len()).sum::<usize>();
    read += artifact.tables().count() + artifact.memories().count() + artifact.globals().count();
    read += artifact.tags().count();
    for element in artifact.elements() {
        read += match element.items {
            ItemsView::Functions(functions) => functions.iter().count(),
            ItemsView::Expressions(expressions) => expressions.iter().map(<[u8]>::len).sum(),
        };
    }
    read += artifact.data().map(|data| data.bytes.iter().filter(|&&byte| byte == 0).count()).sum::<usize>();
    read += artifact.image().count() + artifact.func_refs().count();
    read += artifact
        .functions()
        .map(|function| function.name.len() + function.lines.count() + function.inlined.count())
        .sum::<usize>();
    for at in [0, 1, 6, 47, 48, u64::MAX / 2, u64::MAX] {
        read += artifact.code_frames(at).iter().map(|frame| frame.name.len()).sum::<usize>();
        read += artifact.frame_description(at).map_or(0, <[u8]>::len);
        read += artifact.function_of_operator(at).unwrap_or(0) as usize;
    }
    for index in [0, 1, 2, 3, 4, u32::MAX] {
        read += artifact.function_type(index).unwrap_or(0) as usize;
        read += artifact.func_ref_number(index).unwrap_or(0) as usize;
    }
    for section in
        [artifact.rodata(), artifact.eh_frame(), artifact.gcc_except_table(), artifact.text_bytes()]
    {
        read += section.iter().map(|&byte| usize::from(byte)).sum::<usize>();
    }
    read += artifact.sections().map_or(0, |sections| sections.len());
    read += artifact.to_parts().map_or(0, |(info, _)| info.functions.len());
    std::hint::black_box(read);
}

/// One line, no full stop.
fn assert_clear(error: &LoadError) {
    let line = error.to_string();
    assert!(!line.contains('\n') && !line.ends_with('.') && line.len() > 20, "{line}");
}

#[test]
fn every_truncation_is_refused() {
    let bytes = write(&sample::info(), &sample::code()).unwrap();
    for len in (0..bytes.len()).step_by(13).chain([1, 63, 64, 4095, 4096, bytes.len() - 1]) {
        let error = Artifact::from_bytes(&bytes[..len]).unwrap_err();
        assert_clear(&error);
        assert!(matches!(error, LoadError::NotAnArtifact | LoadError::Length { .. }), "{len}: {error}");
    }
    let mut longer = bytes;
    longer.push(0);
    assert!(matches!(Artifact::from_bytes(&longer).unwrap_err(), LoadError::Length { .. }));
}

#[test]
fn flipped_bytes_never_panic_and_are_found_where_promised() {
    let bytes = write(&sample::info(), &sample::code()).unwrap();
    // The zeros of image and padding say nothing: they are stepped over faster.
    let mut found = 0;
    for at in (0..bytes.len()).filter(|at| bytes[*at] > 2 || at % 61 == 0) {
        let mut damaged = bytes.clone();
        damaged[at] ^= 1 << (at % 8);
        match Artifact::from_bytes(&damaged) {
            Err(error) => {
                assert_clear(&error);
                found += 1;
            }
            Ok(artifact) => {
                assert!(at >= 4096, "damage at {at} of the first page went unseen");
                read_everything(&artifact);
                let error = artifact.verify_contents().unwrap_err();
                assert!(matches!(error, LoadError::Checksum { what: "contents" }), "{error}");
            }
        }
    }
    assert!(found > 100, "{found}");
}

/// Applies a change behind the checksums' back: what a hostile writer would do.
fn forge(change: impl Fn(&mut Vec<u8>)) -> Result<Artifact, LoadError> {
    static BYTES: std::sync::OnceLock<Vec<u8>> = std::sync::OnceLock::new();
    let mut bytes = BYTES.get_or_init(|| write(&sample::info(), &sample::code()).unwrap()).clone();
    change(&mut bytes);
    // Note header 20 bytes; then two words, the hashes of header and metadata, and further on the sections.
    let header = 0x240 + 20;
    let word = |bytes: &[u8], at: usize| u64::from_le_bytes(bytes[at..at + 8].try_into().unwrap()) as usize;
    let meta = header + 8 + 32 + 8 + 32 + 40 + 5 * 16;
    let (at, len) = (word(&bytes, meta), word(&bytes, meta + 8));
    if let Some(meta) = bytes.get(at..at.saturating_add(len)) {
        let hash = xxh3_64(meta);
        bytes[header + 16..header + 24].copy_from_slice(&hash.to_le_bytes());
    }
    bytes[header + 8..header + 16].fill(0);
    let hash = xxh3_64(&bytes[..4096]);
    bytes[header + 8..header + 16].copy_from_slice(&hash.to_le_bytes());
    Artifact::from_bytes(&bytes)
}

#[test]
fn forged_headers_and_records_are_refused_or_harmless() {
    forge(|_| ()).expect("the forger computes checksums as the writer does");
    let bytes = write(&sample::info(), &sample::code()).unwrap();
    let header = 0x240 + 20 + 24..0x240 + 20 + 500;
    let meta = bytes.windows(6).position(|window| window == b"sample").unwrap();
    let mut refused = 0;
    for at in header.chain(4096 * 2..meta + 200) {
        for value in [0, 1, 0x7f, 0x80, 0xff] {
            match forge(|bytes| bytes[at] = value) {
                Ok(artifact) => read_everything(&artifact),
                Err(error) => {
                    assert_clear(&error);
                    refused += 1;
                }
            }
        }
    }
    assert!(refused > 500, "{refused}");
}

#[test]
fn another_version_says_so() {
    let error = forge(|bytes| bytes[0x240 + 20] = 0xee).unwrap_err();
    assert!(matches!(error, LoadError::Version { found: 0xee }), "{error}");
}

#[test]
fn other_files_are_not_artifacts() {
    for bytes in [&b""[..], b"\0asm\x01\0\0\0", b"#!/bin/sh\n", &[0; 5000]] {
        assert!(matches!(Artifact::from_bytes(bytes).unwrap_err(), LoadError::NotAnArtifact));
    }
    let program = std::fs::File::open("/proc/self/exe").unwrap();
    assert!(matches!(Artifact::open(&program).unwrap_err(), LoadError::NotAnArtifact));
    assert_clear(&Artifact::open(&std::fs::File::open("/").unwrap()).unwrap_err());
}

#[test]
fn an_artifact_outlives_the_file_that_it_was_opened_from() {
    let mut file = tempfile::tempfile().unwrap();
    file.write_all(&write(&sample::info(), &sample::code()).unwrap()).unwrap();
    let artifact = Artifact::open(&file).unwrap();
    drop(file);
    read_everything(&artifact);
    artifact.verify_contents().unwrap();
}
