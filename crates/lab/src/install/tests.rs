use super::*;

fn temporary(name: &str) -> PathBuf {
    let folder = std::env::temp_dir().join(format!("mote-lab-install-{name}-{}", std::process::id()));
    let _ = fs::remove_dir_all(&folder);
    fs::create_dir_all(&folder).unwrap();
    folder
}

fn names(folder: &Path) -> Vec<String> {
    let mut names: Vec<String> = fs::read_dir(folder)
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    names.sort();
    names
}

/// A package that pip itself makes from a local folder: the real client, no registry.
fn peer_from(package: &Path, program: &str) -> Peer {
    let text = format!(
        "name = \"greeter\"\nhomepage = \"https://example.org\"\nprogram = \"no-such-greeter\"\nversion = [\"{{program}}\"]\n\
         [install]\nkind = \"pip\"\npackage = \"{}\"\noptions = [\"--no-build-isolation\", \"--no-index\"]\nprogram = \"{program}\"\n\
         steps = [[\"chmod\", \"755\", \"{{home}}/greeter/greet\"]]\n\
         [[subjects]]\nname = \"greeter\"\nmode = \"interpreter\"\nrun = [\"{{program}}\", \"{{wasm}}\"]\nbuilds = [\"stock\"]\n",
        package.display()
    );
    Peer::parse("greeter.toml", &text).unwrap()
}

/// A wheel is a zip file; Python writes it.
fn wheel(folder: &Path) -> PathBuf {
    let wheel = folder.join("greeter-1.0-py3-none-any.whl");
    let script = "import sys, zipfile\n\
        with zipfile.ZipFile(sys.argv[1], 'w') as wheel:\n\
        \x20   wheel.writestr('greeter/greet', '#!/bin/sh\\necho greeter 1.0\\n')\n\
        \x20   wheel.writestr('greeter-1.0.dist-info/METADATA', 'Metadata-Version: 2.1\\nName: greeter\\nVersion: 1.0\\n')\n\
        \x20   wheel.writestr('greeter-1.0.dist-info/WHEEL', 'Wheel-Version: 1.0\\nGenerator: test\\nRoot-Is-Purelib: true\\nTag: py3-none-any\\n')\n\
        \x20   wheel.writestr('greeter-1.0.dist-info/RECORD', '')\n";
    assert!(Command::new("python3").args(["-c", script]).arg(&wheel).status().unwrap().success());
    wheel
}

#[test]
fn pip_installs_in_the_folder_only_and_a_failure_leaves_nothing() {
    let folder = temporary("pip");
    let wheel = wheel(&folder);
    let place = folder.join("peers/greeter");

    let peer = peer_from(&wheel, "greeter/greet");
    let mut out = Vec::new();
    assert_eq!(install_at(&peer, &place, &mut out).unwrap(), "greeter 1.0");
    assert_eq!(names(&folder.join("peers")), ["greeter"]);
    assert!(place.join("greeter/greet").exists());

    // Again, over what is there.
    assert_eq!(install_at(&peer, &place, &mut out).unwrap(), "greeter 1.0");
    assert_eq!(names(&folder.join("peers")), ["greeter"]);

    // The package has no such program: what was installed stays.
    let error = install_at(&peer_from(&wheel, "greeter/other"), &place, &mut out).unwrap_err();
    assert_eq!(error.to_string(), "the package brought no program greeter/other");
    assert!(place.join("greeter/greet").exists());
    assert_eq!(names(&folder.join("peers")), ["greeter"]);

    // There is no such package.
    let other = folder.join("peers/other");
    let error = install_at(
        &peer_from(Path::new("/no/such/greeter-1.0-py3-none-any.whl"), "greeter/greet"),
        &other,
        &mut out,
    )
    .unwrap_err();
    assert!(error.to_string().starts_with("pip: exit status: 1: ERROR: "), "{error:#}");
    assert_eq!(names(&folder.join("peers")), ["greeter"]);
    fs::remove_dir_all(folder).unwrap();
}

#[test]
fn a_step_that_fails_says_why() {
    let folder = temporary("step");
    let wheel = wheel(&folder);
    let mut peer = peer_from(&wheel, "greeter/greet");
    let text = "steps = [[\"sh\", \"-c\", \"echo one; echo two >&2; exit 4\"]]";
    peer.install.steps = toml::from_str::<std::collections::BTreeMap<String, Vec<peer::Template>>>(text)
        .unwrap()
        .remove("steps")
        .unwrap();
    let error = install_at(&peer, &folder.join("peers/greeter"), &mut Vec::new()).unwrap_err();
    assert_eq!(error.to_string(), "sh: exit status: 4: two");
    assert!(names(&folder.join("peers")).is_empty());
    fs::remove_dir_all(folder).unwrap();
}

#[test]
fn what_a_killed_installation_left_is_removed() {
    let folder = temporary("killed");
    // The largest process id of Linux is 4194304.
    fs::create_dir(folder.join(".wasmtime-4999999.partial")).unwrap();
    fs::create_dir(folder.join(format!(".wasmtime-{}.work", std::process::id()))).unwrap();
    fs::create_dir(folder.join("wasmtime")).unwrap();
    remove_abandoned(&folder);
    assert_eq!(names(&folder), [format!(".wasmtime-{}.work", std::process::id()), "wasmtime".into()]);
    fs::remove_dir_all(folder).unwrap();
}

#[test]
fn names_are_checked() {
    let peers = peer::all().unwrap();
    let error = wanted(&peers, &["nobody".into()]).unwrap_err().to_string();
    assert!(error.starts_with("there is no peer 'nobody'; known are mote, native, "), "{error}");
    let error = install_peer(peers.iter().find(|peer| peer.name == "native").unwrap(), &mut Vec::new())
        .unwrap_err()
        .to_string();
    assert_eq!(error, "the lab cannot install it: apt-get install clang-19");
}
