use std::collections::BTreeSet;

use super::*;

const PEER: &str = r#"
name = "echo"
program = ["no-such-echo", "sh"]
version = ["{program}", "-c", "echo echo 1.0"]
[tools]
cat = "cat"
[install]
kind = "apt"
package = "dash"
[[subjects]]
name = "echo"
mode = "interpreter"
run = ["{program}", "-c", "echo $0 $1 $2 $3", "{wasm}", "dir={dir}", "{args}"]
builds = ["stock"]
"#;

fn inputs<'a>(args: &'a [String]) -> Inputs<'a> {
    Inputs { wasm: Path::new("/m.wasm"), artifact: Path::new("/a"), dir: Path::new("/d"), args }
}

#[test]
fn every_embedded_peer_is_complete() {
    let peers = with_folder(None).unwrap();
    assert_eq!(peers.len(), PEERS.len());
    for peer in &peers {
        assert!(
            peer.name == "mote" || peer.homepage.as_ref().is_some_and(|page| page.starts_with("https://")),
            "{}",
            peer.name
        );
        assert!(!peer.how_to_get().is_empty());
        let pinned = peer
            .install
            .package
            .as_ref()
            .is_none_or(|package| package.contains("==") || package.contains('@'));
        let registry =
            !matches!(peer.install.kind, InstallKind::None | InstallKind::Apt | InstallKind::Debian);
        assert!(pinned || !registry, "{}: the package has no version", peer.name);
    }
}

/// A file in peers/ that the program does not carry would be dead.
#[test]
fn every_file_is_embedded() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("peers");
    let names = |folder: &Path, prefix: &str| -> BTreeSet<String> {
        let entries = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap());
        let files = entries.filter(|entry| entry.file_type().unwrap().is_file());
        files.map(|entry| format!("{prefix}{}", entry.file_name().into_string().unwrap())).collect()
    };
    assert_eq!(names(&folder, ""), PEERS.iter().map(|(name, _)| name.to_string()).collect());
    assert_eq!(
        names(&folder.join("files"), "files/"),
        FILES.iter().map(|(name, _)| name.to_string()).collect()
    );
}

#[test]
fn templates_are_filled() {
    let peer = Peer::parse("echo.toml", PEER).unwrap();
    let Found::Here(installation) = peer.find() else { panic!("{:?}", peer.find()) };
    assert_eq!(installation.version, "echo 1.0");
    let args = ["one".to_string(), "a b".to_string()];
    let invocation = peer.subjects[0].run(&installation, &inputs(&args)).unwrap();
    let output = invocation.command().output().unwrap();
    assert_eq!(String::from_utf8(output.stdout).unwrap(), "/m.wasm dir=/d one a b\n");
    assert_eq!(peer.subjects[0].prepare(&installation, &inputs(&args)).unwrap(), None);
}

#[test]
fn a_missing_program_has_a_reason() {
    let peer = Peer::parse("echo.toml", &PEER.replace(", \"sh\"", "")).unwrap();
    let Found::Missing { reason } = peer.find() else { panic!("found") };
    assert_eq!(reason, "no-such-echo is not on PATH; apt-get install dash");
}

/// A subject that pipes through a tool.
fn with_piped(text: &str) -> Peer {
    let more = "[[subjects]]\nname = \"piped\"\nmode = \"interpreter\"\nrun = [\"{cat}\", \"{wasm}\"]\nbuilds = [\"stock\"]\n";
    Peer::parse("echo.toml", &format!("{text}{more}")).unwrap()
}

#[test]
fn tools_versions_are_part_of_the_version() {
    let Found::Here(installation) = with_piped(PEER).find() else { panic!("not found") };
    assert!(installation.version.starts_with("echo 1.0, cat "), "{}", installation.version);
}

#[test]
fn a_missing_tool_concerns_the_subjects_that_use_it() {
    let peer = with_piped(&PEER.replace("cat = \"cat\"", "cat = [\"no-such-cat\"]"));
    let Found::Here(installation) = peer.find() else { panic!("not found") };
    assert_eq!(installation.lacks(&peer.subjects[0]), None);
    assert_eq!(installation.lacks(&peer.subjects[1]).unwrap(), "echo needs no-such-cat, which is not here");
}

#[test]
fn what_a_subject_requires_is_tried() {
    let with = |code| {
        PEER.replace(
            "mode = ",
            &format!("requires = [\"{{program}}\", \"-c\", \"echo no such compiler; exit {code}\"]\nmode = "),
        )
    };
    for (code, expected) in
        [(0, None), (2, Some("echo does not work here: exit status: 2: no such compiler".to_string()))]
    {
        let peer = Peer::parse("echo.toml", &with(code)).unwrap();
        let Found::Here(installation) = peer.find() else { panic!("not found") };
        assert_eq!(installation.lacks(&peer.subjects[0]), expected);
    }
}

#[test]
fn a_program_that_fails_to_say_its_version_is_missing() {
    for (command, expected) in [
        ("exit 3", "exit status: 3: it said nothing"),
        ("true", "it said nothing"),
        ("echo no >&2; exit 1", "exit status: 1: no"),
    ] {
        let peer = Peer::parse("echo.toml", &PEER.replace("echo echo 1.0", command)).unwrap();
        let Found::Missing { reason } = peer.find() else { panic!("found with {command}") };
        assert!(reason.ends_with(&format!("does not say its version: {expected}")), "{reason}");
    }
}

#[test]
fn errors_say_where_and_what() {
    for (from, to, expected) in [
        ("name = \"echo\"\nprogram", "name = \"../echo\"\nprogram", "the name may have"),
        ("builds = [\"stock\"]", "builds = []", "subject echo: 'builds' is empty"),
        ("{wasm}", "{wasn}", "there is no placeholder {wasn}"),
        ("\"{wasm}\", ", "", "names neither {wasm} nor {artifact}"),
        ("{wasm}", "{artifact}", "{artifact} must be in both"),
        ("mode = \"interpreter\"", "mode = \"slow\"", "unknown variant `slow`"),
        ("kind = \"apt\"", "kind = \"pip\"", "[install] has no 'program'"),
        ("kind = \"apt\"", "kind = \"none\"", "has no 'reason'"),
        ("package = \"dash\"", "packages = \"dash\"", "unknown field `packages`"),
        ("version = [\"{program}\", \"-c\", \"echo echo 1.0\"]", "", "'version' is missing"),
    ] {
        assert!(PEER.contains(from), "{from}");
        let error = format!("{:#}", Peer::parse("echo.toml", &PEER.replacen(from, to, 1)).unwrap_err());
        assert!(error.starts_with("echo.toml: ") && error.contains(expected), "{error}");
    }
}

#[test]
fn a_users_file_replaces_ours() {
    let folder = temporary("user");
    fs::write(folder.join("mine.toml"), PEER).unwrap();
    fs::write(folder.join("wasmtime.toml"), PEER.replace("\"echo\"", "\"wasmtime\"")).unwrap();
    fs::write(folder.join("notes.txt"), "not a peer").unwrap();
    let peers = with_folder(Some(&folder)).unwrap();
    assert_eq!(peers.len(), PEERS.len() + 1);
    let wasmtime = peers.iter().find(|peer| peer.name == "wasmtime").unwrap();
    assert_eq!(wasmtime.subjects.len(), 1);
    assert_eq!(wasmtime.install.kind, InstallKind::Apt);

    fs::write(folder.join("other.toml"), PEER.replacen("name = \"echo\"", "name = \"other\"", 1)).unwrap();
    let error = with_folder(Some(&folder)).unwrap_err().to_string();
    assert!(error.contains("the subject echo is in two peers, echo and other"), "{error}");
    fs::remove_dir_all(folder).unwrap();
}

#[test]
fn builds_match_by_their_beginning() {
    let peers = with_folder(None).unwrap();
    let subject = |name: &str| {
        peers.iter().flat_map(|peer| &peer.subjects).find(|subject| subject.name == name).unwrap()
    };
    assert!(subject("node").runs_build("stock"));
    assert!(subject("node").runs_build("stock-opt"));
    assert!(!subject("node").runs_build("modern-opt"));
    assert!(subject("native").runs_build("native"));
    assert!(!subject("native").runs_build("native-nosimd"));
    assert!(!subject("native").runs_build("stock"));
}

/// A WASI program that leaves with code 7, in binary form: `(call $proc_exit (i32.const 7))`.
const EXITS: &[u8] = b"\0asm\x01\0\0\0\
    \x01\x08\x02\x60\x01\x7f\0\x60\0\0\
    \x02\x24\x01\x16wasi_snapshot_preview1\x09proc_exit\0\0\
    \x03\x02\x01\x01\
    \x05\x03\x01\0\x01\
    \x07\x13\x02\x06_start\0\x01\x06memory\x02\0\
    \x0a\x08\x01\x06\0\x41\x07\x10\0\x0b";

/// Each peer that is on this machine really runs a module; the others are named. Mote is the one that the project has just built.
#[test]
fn peers_that_are_here_run_a_module() {
    let folder = temporary("run");
    let wasm = folder.join("exits.wasm");
    fs::write(&wasm, EXITS).unwrap();
    let mut ran = Vec::new();
    for peer in with_folder(None).unwrap() {
        let peer = if peer.name == "mote" { mote() } else { peer };
        let installation = match peer.find() {
            Found::Here(installation) => installation,
            Found::Missing { reason } => {
                println!("{}: {reason}", peer.name);
                continue;
            }
        };
        for subject in peer.subjects.iter().filter(|subject| subject.mode != Mode::Native) {
            match installation.lacks(subject) {
                Some(reason) => println!("{}: {reason}", subject.name),
                None => {
                    runs(subject, &installation, &wasm, &folder);
                    ran.push(subject.name.clone());
                }
            }
        }
    }
    println!("ran: {}", ran.join(", "));
    let built = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../bin/mote").exists();
    assert!(ran.contains(&"mote".into()) || !built, "bin/mote is there, but was not found");
    fs::remove_dir_all(folder).unwrap();
}

fn mote() -> Peer {
    let (file, text) = PEERS.iter().find(|(file, _)| *file == "mote.toml").unwrap();
    let program = format!("program = [\"mote\", \"{}/../../bin/mote\"]", env!("CARGO_MANIFEST_DIR"));
    Peer::parse(file, &text.replace("program = \"mote\"", &program)).unwrap()
}

fn runs(subject: &PeerSubject, installation: &Installation, wasm: &Path, folder: &Path) {
    let artifact = folder.join(&subject.name);
    let inputs = Inputs { wasm, artifact: &artifact, dir: folder, args: &[] };
    if let Some(invocation) = subject.prepare(installation, &inputs).unwrap() {
        let output = invocation.command().current_dir(folder).output().unwrap();
        assert!(output.status.success(), "{invocation}: {}", String::from_utf8_lossy(&output.stderr));
    }
    let invocation = subject.run(installation, &inputs).unwrap();
    let output = invocation.command().current_dir(folder).output().unwrap();
    // iwasm of that year forgets the guest's code.
    let code = if subject.name.starts_with("wamr") { 0 } else { 7 };
    assert_eq!(output.status.code(), Some(code), "{invocation}: {}", String::from_utf8_lossy(&output.stderr));
}

fn temporary(name: &str) -> PathBuf {
    let folder = env::temp_dir().join(format!("mote-lab-peer-{name}-{}", std::process::id()));
    let _ = fs::remove_dir_all(&folder);
    fs::create_dir_all(&folder).unwrap();
    folder
}
