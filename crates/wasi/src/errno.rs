//! The error numbers of WASI preview 1 and how a call may end.
//!
//! Every function returns `Result<(), Error>`. [`Error::Errno`] goes back to the guest as the function's result; the other
//! variants end the guest and travel to whoever started it.

/// `errno` of the specification; [`Ok`] stands for 0 (success).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u16)]
#[expect(missing_docs, reason = "the names are the specification's")]
pub enum Errno {
    TooBig = 1,
    Acces = 2,
    AddrInUse = 3,
    AddrNotAvail = 4,
    AfNoSupport = 5,
    Again = 6,
    Already = 7,
    Badf = 8,
    BadMsg = 9,
    Busy = 10,
    Canceled = 11,
    Child = 12,
    ConnAborted = 13,
    ConnRefused = 14,
    ConnReset = 15,
    Deadlk = 16,
    DestAddrReq = 17,
    Dom = 18,
    Dquot = 19,
    Exist = 20,
    Fault = 21,
    Fbig = 22,
    HostUnreach = 23,
    Idrm = 24,
    Ilseq = 25,
    InProgress = 26,
    Intr = 27,
    Inval = 28,
    Io = 29,
    IsConn = 30,
    IsDir = 31,
    Loop = 32,
    Mfile = 33,
    Mlink = 34,
    MsgSize = 35,
    Multihop = 36,
    NameTooLong = 37,
    NetDown = 38,
    NetReset = 39,
    NetUnreach = 40,
    Nfile = 41,
    NoBufs = 42,
    NoDev = 43,
    NoEnt = 44,
    NoExec = 45,
    NoLck = 46,
    NoLink = 47,
    NoMem = 48,
    NoMsg = 49,
    NoProtoOpt = 50,
    NoSpc = 51,
    NoSys = 52,
    NotConn = 53,
    NotDir = 54,
    NotEmpty = 55,
    NotRecoverable = 56,
    NotSock = 57,
    NotSup = 58,
    NoTty = 59,
    Nxio = 60,
    Overflow = 61,
    OwnerDead = 62,
    Perm = 63,
    Pipe = 64,
    Proto = 65,
    ProtoNoSupport = 66,
    Prototype = 67,
    Range = 68,
    Rofs = 69,
    Spipe = 70,
    Srch = 71,
    Stale = 72,
    TimedOut = 73,
    TxtBsy = 74,
    Xdev = 75,
    NotCapable = 76,
}

/// Why a call did not succeed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// The call failed; the guest gets the number and goes on.
    #[error("error number {0:?}")]
    Errno(Errno),
    /// The guest called `proc_exit` with this code.
    #[error("exit with code {0}")]
    Exit(u32),
    /// The guest raised a signal that ends it (the number is the specification's).
    #[error("ended by its own signal {0}")]
    Signal(u8),
    /// A wait was ended from outside through [`crate::Interrupt`].
    #[error("interrupted while it waited")]
    Interrupted,
}

impl Error {
    /// The status that a process that runs this guest should exit with; [`None`] when the guest did not ask to end.
    /// As in a shell: the low 8 bits of the code, and 128 + the number of a signal.
    pub fn exit_status(self) -> Option<u8> {
        match self {
            Error::Exit(code) => Some((code & 0xff) as u8),
            Error::Signal(number) => Some(128u8.saturating_add(number)),
            Error::Errno(_) | Error::Interrupted => None,
        }
    }
}

impl From<Errno> for Error {
    fn from(errno: Errno) -> Error {
        Error::Errno(errno)
    }
}

impl From<rustix::io::Errno> for Error {
    fn from(errno: rustix::io::Errno) -> Error {
        Error::Errno(errno.into())
    }
}

impl From<rustix::io::Errno> for Errno {
    fn from(errno: rustix::io::Errno) -> Errno {
        use rustix::io::Errno as Host;
        match errno {
            Host::TOOBIG => Errno::TooBig,
            Host::ACCESS => Errno::Acces,
            Host::ADDRINUSE => Errno::AddrInUse,
            Host::ADDRNOTAVAIL => Errno::AddrNotAvail,
            Host::AFNOSUPPORT => Errno::AfNoSupport,
            Host::AGAIN => Errno::Again,
            Host::ALREADY => Errno::Already,
            Host::BADF => Errno::Badf,
            Host::BADMSG => Errno::BadMsg,
            Host::BUSY => Errno::Busy,
            Host::CANCELED => Errno::Canceled,
            Host::CHILD => Errno::Child,
            Host::CONNABORTED => Errno::ConnAborted,
            Host::CONNREFUSED => Errno::ConnRefused,
            Host::CONNRESET => Errno::ConnReset,
            Host::DEADLK => Errno::Deadlk,
            Host::DESTADDRREQ => Errno::DestAddrReq,
            Host::DOM => Errno::Dom,
            Host::DQUOT => Errno::Dquot,
            Host::EXIST => Errno::Exist,
            Host::FAULT => Errno::Fault,
            Host::FBIG => Errno::Fbig,
            Host::HOSTUNREACH => Errno::HostUnreach,
            Host::IDRM => Errno::Idrm,
            Host::ILSEQ => Errno::Ilseq,
            Host::INPROGRESS => Errno::InProgress,
            Host::INTR => Errno::Intr,
            Host::INVAL => Errno::Inval,
            Host::ISCONN => Errno::IsConn,
            Host::ISDIR => Errno::IsDir,
            Host::LOOP => Errno::Loop,
            Host::MFILE => Errno::Mfile,
            Host::MLINK => Errno::Mlink,
            Host::MSGSIZE => Errno::MsgSize,
            Host::MULTIHOP => Errno::Multihop,
            Host::NAMETOOLONG => Errno::NameTooLong,
            Host::NETDOWN => Errno::NetDown,
            Host::NETRESET => Errno::NetReset,
            Host::NETUNREACH => Errno::NetUnreach,
            Host::NFILE => Errno::Nfile,
            Host::NOBUFS => Errno::NoBufs,
            Host::NODEV => Errno::NoDev,
            Host::NOENT => Errno::NoEnt,
            Host::NOEXEC => Errno::NoExec,
            Host::NOLCK => Errno::NoLck,
            Host::NOLINK => Errno::NoLink,
            Host::NOMEM => Errno::NoMem,
            Host::NOMSG => Errno::NoMsg,
            Host::NOPROTOOPT => Errno::NoProtoOpt,
            Host::NOSPC => Errno::NoSpc,
            Host::NOSYS => Errno::NoSys,
            Host::NOTCONN => Errno::NotConn,
            Host::NOTDIR => Errno::NotDir,
            Host::NOTEMPTY => Errno::NotEmpty,
            Host::NOTRECOVERABLE => Errno::NotRecoverable,
            Host::NOTSOCK => Errno::NotSock,
            Host::OPNOTSUPP => Errno::NotSup,
            Host::NOTTY => Errno::NoTty,
            Host::NXIO => Errno::Nxio,
            Host::OVERFLOW => Errno::Overflow,
            Host::OWNERDEAD => Errno::OwnerDead,
            Host::PERM => Errno::Perm,
            Host::PIPE => Errno::Pipe,
            Host::PROTO => Errno::Proto,
            Host::PROTONOSUPPORT => Errno::ProtoNoSupport,
            Host::PROTOTYPE => Errno::Prototype,
            Host::RANGE => Errno::Range,
            Host::ROFS => Errno::Rofs,
            Host::SPIPE => Errno::Spipe,
            Host::SRCH => Errno::Srch,
            Host::STALE => Errno::Stale,
            Host::TIMEDOUT => Errno::TimedOut,
            Host::TXTBSY => Errno::TxtBsy,
            Host::XDEV => Errno::Xdev,
            // What the guest's libc has no name for is an input/output error to it.
            _ => Errno::Io,
        }
    }
}
