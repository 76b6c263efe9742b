//! The machine's fingerprint: what a reader needs to judge whether two reports may be compared.
//!
//! Everything is read from `/proc`, `/sys` and `/etc/os-release`. A file that is not there leaves its field empty: a fingerprint is always
//! had, whatever the kernel or the sandbox shows.

use std::fs;
use std::io::Read;
use std::path::Path;

use crate::record::Machine;

/// What is read of one file, at most. `/proc/cpuinfo` holds about 1.5 kB per processor; the first processor is enough.
const FILE_LIMIT: u64 = 256 * 1024;

/// The instruction sets that change what a compiler emits, by the names of `/proc/cpuinfo`.
const FEATURES: &[&str] = &[
    "sse4_1",
    "sse4_2",
    "avx",
    "avx2",
    "avx512f",
    "avx512vl",
    "avx512ifma",
    "avx512vbmi",
    "bmi1",
    "bmi2",
    "adx",
    "aes",
    "vaes",
    "pclmulqdq",
    "vpclmulqdq",
    "sha_ni",
    "gfni",
    "fma",
    "popcnt",
    // Of 64-bit ARM.
    "asimd",
    "sve",
    "sve2",
    "sha2",
    "sha512",
    "pmull",
];

/// The machine that this process runs on; both load averages are those of now.
pub fn fingerprint() -> Machine {
    read_from(Path::new("/"))
}

/// The load averages over 1, 5 and 15 minutes; zeros where the kernel does not show them.
pub fn load() -> [f64; 3] {
    load_from(Path::new("/"))
}

/// [`fingerprint`] of a system whose files lie under `root`.
fn read_from(root: &Path) -> Machine {
    let cpuinfo = text(root, "proc/cpuinfo");
    let flags: Vec<&str> =
        field(&cpuinfo, &["flags", "Features"]).unwrap_or_default().split_whitespace().collect();
    let load = load_from(root);
    Machine {
        cpu: field(&cpuinfo, &["model name", "Processor", "CPU part"]).unwrap_or("unknown").to_owned(),
        cpus: std::thread::available_parallelism().map_or(1, usize::from),
        cpu_features: FEATURES
            .iter()
            .filter(|name| flags.contains(name))
            .map(|name| (*name).to_owned())
            .collect(),
        governor: line(root, "sys/devices/system/cpu/cpu0/cpufreq/scaling_governor"),
        hypervisor: hypervisor(root, &flags),
        kernel: line(root, "proc/sys/kernel/osrelease").unwrap_or_default(),
        system: system(&text(root, "etc/os-release")),
        memory_bytes: memory(&text(root, "proc/meminfo")),
        load_before: load,
        load_after: load,
    }
}

/// A file's text, cut at [`FILE_LIMIT`]; empty when there is none.
fn text(root: &Path, path: &str) -> String {
    let mut bytes = Vec::new();
    let read = fs::File::open(root.join(path)).and_then(|file| file.take(FILE_LIMIT).read_to_end(&mut bytes));
    match read {
        Ok(_) => String::from_utf8_lossy(&bytes).into_owned(),
        Err(_) => String::new(),
    }
}

/// A file's first line without its blanks, if there is one.
fn line(root: &Path, path: &str) -> Option<String> {
    let text = text(root, path);
    let line = text.lines().next()?.trim();
    (!line.is_empty()).then(|| line.to_owned())
}

/// The value of the first `key : value` line with one of these keys, the keys in order of preference.
fn field<'a>(text: &'a str, keys: &[&str]) -> Option<&'a str> {
    keys.iter().find_map(|key| {
        text.lines().find_map(|line| {
            let (name, value) = line.split_once(':')?;
            (name.trim() == *key).then(|| value.trim())
        })
    })
}

/// The hypervisor's name: the vendor and product that the firmware tells, or that there is one.
fn hypervisor(root: &Path, flags: &[&str]) -> Option<String> {
    if !flags.contains(&"hypervisor") {
        return None;
    }
    let told = line(root, "sys/hypervisor/type").or_else(|| {
        let vendor = line(root, "sys/class/dmi/id/sys_vendor")?;
        match line(root, "sys/class/dmi/id/product_name") {
            Some(product) => Some(format!("{vendor} {product}")),
            None => Some(vendor),
        }
    });
    Some(told.unwrap_or_else(|| "unnamed".to_owned()))
}

/// PRETTY_NAME of os-release(5), without its quotes.
fn system(os_release: &str) -> String {
    os_release
        .lines()
        .find_map(|line| line.strip_prefix("PRETTY_NAME="))
        .map(|name| name.trim().trim_matches(['"', '\'']).to_owned())
        .unwrap_or_default()
}

/// MemTotal of proc_meminfo(5), in bytes.
fn memory(meminfo: &str) -> u64 {
    field(meminfo, &["MemTotal"])
        .and_then(|value| value.split_whitespace().next())
        .and_then(|kib| kib.parse::<u64>().ok())
        .unwrap_or(0)
        .saturating_mul(1024)
}

/// The first three fields of proc_loadavg(5).
fn load_from(root: &Path) -> [f64; 3] {
    let text = text(root, "proc/loadavg");
    let mut fields = text
        .split_whitespace()
        .map(|field| field.parse::<f64>().ok().filter(|load| load.is_finite()).unwrap_or(0.0));
    [fields.next().unwrap_or(0.0), fields.next().unwrap_or(0.0), fields.next().unwrap_or(0.0)]
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A folder of its own, removed at the end.
    struct Root(std::path::PathBuf);

    impl Root {
        fn new(name: &str, files: &[(&str, &[u8])]) -> Self {
            let root = std::env::temp_dir().join(format!("mote-lab-machine-{name}-{}", std::process::id()));
            for (path, bytes) in files {
                let path = root.join(path);
                fs::create_dir_all(path.parent().unwrap()).unwrap();
                fs::write(path, bytes).unwrap();
            }
            Self(root)
        }
    }

    impl Drop for Root {
        fn drop(&mut self) {
            let _ = fs::remove_dir_all(&self.0);
        }
    }

    #[test]
    fn this_machine_has_a_name_a_kernel_and_memory() {
        let machine = fingerprint();
        assert!(machine.cpus >= 1);
        assert!(!machine.cpu.is_empty());
        assert_eq!(machine.kernel, fs::read_to_string("/proc/sys/kernel/osrelease").unwrap().trim());
        assert!(machine.memory_bytes > 64 << 20, "{}", machine.memory_bytes);
        assert!(load().iter().all(|load| *load >= 0.0));
    }

    #[test]
    fn the_fields_of_the_files() {
        let root = Root::new(
            "files",
            &[
                (
                    "proc/cpuinfo",
                    b"processor\t: 0\nmodel name\t: AMD EPYC\nflags\t\t: fpu avx2 hypervisor adx avx2x\n\nprocessor\t: 1\nmodel name\t: other\n",
                ),
                ("proc/meminfo", b"MemTotal:       24629676 kB\nMemFree: 1 kB\n"),
                ("proc/loadavg", b"6.80 6.25 5.68 6/145 12082\n"),
                ("proc/sys/kernel/osrelease", b"6.18.44\n"),
                ("etc/os-release", b"NAME=\"Debian\"\nPRETTY_NAME=\"Debian GNU/Linux 12 (bookworm)\"\n"),
                ("sys/devices/system/cpu/cpu0/cpufreq/scaling_governor", b"powersave\n"),
                ("sys/class/dmi/id/sys_vendor", b"QEMU\n"),
            ],
        );
        let machine = read_from(&root.0);
        assert_eq!(machine.cpu, "AMD EPYC");
        assert_eq!(machine.cpu_features, ["avx2", "adx"]);
        assert_eq!(machine.governor.as_deref(), Some("powersave"));
        assert_eq!(machine.hypervisor.as_deref(), Some("QEMU"));
        assert_eq!(machine.kernel, "6.18.44");
        assert_eq!(machine.system, "Debian GNU/Linux 12 (bookworm)");
        assert_eq!(machine.memory_bytes, 24_629_676 * 1024);
        assert_eq!(machine.load_before, [6.80, 6.25, 5.68]);
    }

    #[test]
    fn without_files_or_with_broken_ones_there_is_a_fingerprint_still() {
        let machine = read_from(Path::new("/nonexistent"));
        assert_eq!(machine.cpu, "unknown");
        assert_eq!((machine.governor, machine.hypervisor), (None, None));
        assert_eq!(machine.memory_bytes, 0);
        assert_eq!(machine.load_before, [0.0; 3]);

        let root = Root::new(
            "broken",
            &[
                ("proc/cpuinfo", b"\xff\xfe: : :\nmodel name\n"),
                ("proc/meminfo", b"MemTotal: 99999999999999999999 kB"),
                ("proc/loadavg", b"NaN inf"),
                ("etc/os-release", b""),
            ],
        );
        let machine = read_from(&root.0);
        assert_eq!(machine.cpu, "unknown");
        assert_eq!(machine.memory_bytes, 0);
        assert_eq!(machine.load_before, [0.0; 3]);
    }
}
