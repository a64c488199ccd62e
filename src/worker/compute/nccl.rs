//! NCCL and RCCL: one table of functions, since RCCL exports NCCL's names.

#![expect(unsafe_code, reason = "calls a foreign library")]

use std::{
    ffi::{CStr, c_char, c_int, c_void},
    ptr::null_mut,
};

use probes::{
    collectives::{Op, Shape},
    compute::{self, Fault, Vendor},
    lines::NODE,
};

use super::{
    Stop,
    device::{Device, Stream},
    functions::functions,
    runtime::{Handle, Runtime},
};
use crate::worker::library::Search;

/// What every function answers: `ncclResult_t`, of which 0 is success.
pub(super) type Status = c_int;

functions! {
    /// `nccl.h`: there since the first version.
    pub(super) struct Version {
        version = "ncclResult_t ncclGetVersion(int *)" as fn(*mut c_int) -> Status;
    }
}

functions! {
    /// `nccl.h`, `%` being `cuda` and `hip`. `ncclSend` and `ncclRecv` are the youngest.
    pub(super) struct Functions {
        init_all = "ncclResult_t ncclCommInitAll(ncclComm_t *, int, const int *)"
            as fn(*mut Handle, c_int, *const c_int) -> Status;
        async_error = "ncclResult_t ncclCommGetAsyncError(ncclComm_t, ncclResult_t *)"
            as fn(Handle, *mut Status) -> Status;
        error_words = "const char *ncclGetErrorString(ncclResult_t)" as fn(Status) -> *const c_char;
        group_start = "ncclResult_t ncclGroupStart(void)" as fn() -> Status;
        group_end = "ncclResult_t ncclGroupEnd(void)" as fn() -> Status;
        all_reduce = "ncclResult_t ncclAllReduce(const void *, void *, size_t, ncclDataType_t, ncclRedOp_t, ncclComm_t, %Stream_t)"
            as fn(*const c_void, *mut c_void, usize, c_int, c_int, Handle, Handle) -> Status;
        reduce_scatter = "ncclResult_t ncclReduceScatter(const void *, void *, size_t, ncclDataType_t, ncclRedOp_t, ncclComm_t, %Stream_t)"
            as fn(*const c_void, *mut c_void, usize, c_int, c_int, Handle, Handle) -> Status;
        all_gather = "ncclResult_t ncclAllGather(const void *, void *, size_t, ncclDataType_t, ncclComm_t, %Stream_t)"
            as fn(*const c_void, *mut c_void, usize, c_int, Handle, Handle) -> Status;
        broadcast = "ncclResult_t ncclBroadcast(const void *, void *, size_t, ncclDataType_t, int, ncclComm_t, %Stream_t)"
            as fn(*const c_void, *mut c_void, usize, c_int, c_int, Handle, Handle) -> Status;
        send = "ncclResult_t ncclSend(const void *, size_t, ncclDataType_t, int, ncclComm_t, %Stream_t)"
            as fn(*const c_void, usize, c_int, c_int, Handle, Handle) -> Status;
        receive = "ncclResult_t ncclRecv(void *, size_t, ncclDataType_t, int, ncclComm_t, %Stream_t)"
            as fn(*mut c_void, usize, c_int, c_int, Handle, Handle) -> Status;
    }
}

functions! {
    /// From NCCL 2.13 on.
    pub(super) struct LastError {
        words = "const char *ncclGetLastError(ncclComm_t)" as fn(Handle) -> *const c_char;
    }
}

functions! {
    /// From NCCL 2.28 on. nccl-tests that are built for it use it where it is.
    pub(super) struct NcclAllToAll {
        all_to_all = "ncclResult_t ncclAlltoAll(const void *, void *, size_t, ncclDataType_t, ncclComm_t, %Stream_t)"
            as fn(*const c_void, *mut c_void, usize, c_int, Handle, Handle) -> Status;
    }
}

functions! {
    /// RCCL's own spelling of the same, which rccl-tests use.
    pub(super) struct RcclAllToAll {
        all_to_all = "ncclResult_t ncclAllToAll(const void *, void *, size_t, ncclDataType_t, ncclComm_t, %Stream_t)"
            as fn(*const c_void, *mut c_void, usize, c_int, Handle, Handle) -> Status;
    }
}

/// Constants of both headers: name and number.
#[cfg(test)]
pub(super) const CONSTANTS: &[(&str, c_int)] =
    &[("ncclSuccess", SUCCESS), ("ncclFloat", FLOAT), ("ncclSum", SUM)];

const SUCCESS: Status = 0;
const FLOAT: c_int = 7;
const SUM: c_int = 0;
/// Who sends in a broadcast.
const ROOT: c_int = 0;

/// The oldest version that has `ncclSend` and `ncclRecv`: 2.7, as the library writes it.
const LEAST: c_int = 2_700;

type AllToAll = unsafe extern "C" fn(*const c_void, *mut c_void, usize, c_int, Handle, Handle) -> Status;

/// The library of a vendor.
pub(super) fn names(vendor: Vendor) -> &'static [&'static str] {
    match vendor {
        Vendor::Amd => &["librccl.so.1"],
        Vendor::Nvidia => &["libnccl.so.2"],
    }
}

/// A loaded library.
#[derive(Debug)]
struct Nccl {
    functions: Functions,
    last_error: Option<LastError>,
    all_to_all: Option<AllToAll>,
}

/// A communicator for each GPU, in the order of their ranks. They are never destroyed: that takes
/// a third of a second, and the process ends anyway.
#[derive(Debug)]
pub(super) struct Communicators<'r> {
    nccl: Nccl,
    runtime: &'r Runtime,
    ranks: Vec<Handle>,
}

/// What a rank brings into an exchange.
#[derive(Clone, Copy, Debug)]
pub(super) struct Seat<'s> {
    /// Holds at least what the shape says is sent.
    pub(super) from: *const c_void,
    /// Holds at least what the shape says is received.
    pub(super) to: *mut c_void,
    pub(super) stream: &'s Stream<'s>,
}

impl<'r> Communicators<'r> {
    /// Loads the vendor's library, tells which to `used`, and lets the GPUs meet.
    pub(super) fn meet(
        vendor: Vendor,
        search: &Search,
        runtime: &'r Runtime,
        devices: &[Device<'_>],
        used: impl FnOnce(compute::Library) -> Result<(), Stop>,
    ) -> Result<Communicators<'r>, Stop> {
        let (nccl, library) = Nccl::load(vendor, search)?;
        used(library)?;
        let indexes: Vec<c_int> = devices.iter().map(|device| device.index).collect();
        let mut ranks = vec![null_mut(); indexes.len()];
        let count = c_int::try_from(indexes.len()).unwrap_or(c_int::MAX);
        // SAFETY: it reads as many numbers and writes as many handles as it is told.
        let status = unsafe { (nccl.functions.init_all)(ranks.as_mut_ptr(), count, indexes.as_ptr()) };
        runtime.forget_device();
        nccl.check(status, || format!("ncclCommInitAll of {count} GPUs"))?;
        Ok(Communicators { nccl, runtime, ranks })
    }

    /// Enqueues an exchange, `times` times, on the stream of each rank. Each goes to all GPUs in one
    /// group, as nccl-tests does it: one thread has to.
    pub(super) fn exchange(&self, op: Op, shape: Shape, seats: &[Seat<'_>], times: u32) -> Result<(), Stop> {
        assert_eq!(seats.len(), self.ranks.len(), "a seat for each rank");
        let functions = &self.nccl.functions;
        let done = (0..times).try_for_each(|_| {
            // SAFETY: no arguments.
            self.nccl.check(unsafe { (functions.group_start)() }, || "ncclGroupStart".into())?;
            for (rank, seat) in seats.iter().enumerate() {
                self.enqueue(op, shape, rank, seat)?;
            }
            // SAFETY: a group is open.
            self.nccl.check(unsafe { (functions.group_end)() }, || format!("ncclGroupEnd of {}", op.name()))
        });
        self.runtime.forget_device();
        done
    }

    fn enqueue(&self, op: Op, shape: Shape, rank: usize, seat: &Seat<'_>) -> Result<(), Stop> {
        let (functions, communicator) = (&self.nccl.functions, self.ranks[rank]);
        let (count, stream) = (shape.count, seat.stream.handle());
        let (from, to, ranks) = (seat.from, seat.to, self.ranks.len());
        // SAFETY: the buffers hold what the shape says, by the contract of Seat; communicator and
        // stream are alive and of one GPU, whose rank this is.
        let status = unsafe {
            match op {
                Op::AllReduce => (functions.all_reduce)(from, to, count, FLOAT, SUM, communicator, stream),
                Op::ReduceScatter => {
                    (functions.reduce_scatter)(from, to, count, FLOAT, SUM, communicator, stream)
                }
                Op::AllGather => (functions.all_gather)(from, to, count, FLOAT, communicator, stream),
                Op::Broadcast => (functions.broadcast)(from, to, count, FLOAT, ROOT, communicator, stream),
                Op::SendRecv => {
                    let (next, before) = ((rank + 1) % ranks, (rank + ranks - 1) % ranks);
                    return self.send_and_receive(seat, count, communicator, [(next, 0)], [(before, 0)]);
                }
                Op::AllToAll => match self.nccl.all_to_all {
                    Some(all_to_all) => all_to_all(from, to, count, FLOAT, communicator, stream),
                    None => {
                        let parts = (0..ranks).map(|peer| (peer, peer * count));
                        return self.send_and_receive(seat, count, communicator, parts.clone(), parts);
                    }
                },
            }
        };
        self.nccl.check(status, || format!("{} of {} bytes", op.name(), shape.bytes()))
    }

    /// Sends to and receives from peers, each at an element of the buffer.
    fn send_and_receive(
        &self,
        seat: &Seat<'_>,
        count: usize,
        communicator: Handle,
        to: impl IntoIterator<Item = (usize, usize)>,
        from: impl IntoIterator<Item = (usize, usize)>,
    ) -> Result<(), Stop> {
        let stream = seat.stream.handle();
        for ((next, sent), (before, received)) in to.into_iter().zip(from) {
            let peer = |rank: usize| c_int::try_from(rank).unwrap_or(c_int::MAX);
            let source = seat.from.wrapping_byte_add(sent * probes::collectives::ELEMENT);
            let target = seat.to.wrapping_byte_add(received * probes::collectives::ELEMENT);
            // SAFETY: the caller's shape says that as many elements are at these places.
            let status =
                unsafe { (self.nccl.functions.send)(source, count, FLOAT, peer(next), communicator, stream) };
            self.nccl.check(status, || format!("ncclSend of {count} elements"))?;
            // SAFETY: as above.
            let status = unsafe {
                (self.nccl.functions.receive)(target, count, FLOAT, peer(before), communicator, stream)
            };
            self.nccl.check(status, || format!("ncclRecv of {count} elements"))?;
        }
        Ok(())
    }

    /// Whether an exchange that is under way has met an error.
    pub(super) fn check(&self) -> Result<(), Stop> {
        for communicator in &self.ranks {
            let mut error = SUCCESS;
            // SAFETY: the communicator is alive, and it writes one number.
            let status = unsafe { (self.nccl.functions.async_error)(*communicator, &mut error) };
            self.nccl.check(status, || "ncclCommGetAsyncError".into())?;
            self.nccl.check(error, || "a collective under way".into())?;
        }
        Ok(())
    }
}

impl Nccl {
    fn load(vendor: Vendor, search: &Search) -> Result<(Nccl, compute::Library), Stop> {
        let prefix = match vendor {
            Vendor::Amd => "hip",
            Vendor::Nvidia => "cuda",
        };
        let library = search.open(names(vendor))?;
        let spell = |declaration: &str| declaration.replace('%', prefix);
        let mut version = 0;
        let get_version = Version::load(&library, spell)?.version;
        // SAFETY: it writes one int.
        let status = unsafe { get_version(&mut version) };
        if status != SUCCESS || version < LEAST {
            let words = format!("{library} is version {}, and ncclSend needs 2.7.0", written(version));
            return Err(Stop::Unsupported(words));
        }
        let all_to_all = match vendor {
            Vendor::Amd => RcclAllToAll::load(&library, spell).map(|table| table.all_to_all),
            Vendor::Nvidia => NcclAllToAll::load(&library, spell).map(|table| table.all_to_all),
        };
        let nccl = Nccl {
            functions: Functions::load(&library, spell)?,
            last_error: LastError::load(&library, spell).ok(),
            all_to_all: all_to_all.ok(),
        };
        let used = compute::Library {
            name: library.name.clone(),
            path: library.path.display().to_string(),
            version: written(version),
        };
        library.keep();
        Ok((nccl, used))
    }

    fn check(&self, status: Status, call: impl FnOnce() -> String) -> Result<(), Stop> {
        if status == SUCCESS {
            return Ok(());
        }
        Err(Stop::Fault(Fault {
            part: NODE.to_string(),
            call: call(),
            error: self.words(status),
            hardware: false,
        }))
    }

    /// `unhandled cuda error (1): Cuda failure 2 'out of memory'`
    fn words(&self, status: Status) -> String {
        // SAFETY: any number may be asked for.
        let words = text(unsafe { (self.functions.error_words)(status) });
        // SAFETY: it takes any communicator and none, and answers with the last error of all.
        let last = self.last_error.map(|last| text(unsafe { (last.words)(null_mut()) }));
        match last.filter(|last| !last.is_empty()) {
            Some(last) => format!("{words} ({status}): {}", last.trim()),
            None => format!("{words} ({status})"),
        }
    }
}

fn text(at: *const c_char) -> String {
    if at.is_null() {
        return String::new();
    }
    // SAFETY: the library gives texts that end, and stay where they are.
    unsafe { CStr::from_ptr(at) }.to_string_lossy().into_owned()
}

/// `2.28.9` of the number that `ncclGetVersion` gives: `NCCL_VERSION` of `nccl.h` has one digit for
/// the minor version up to 2.8, and two after that.
fn written(version: c_int) -> String {
    let (major, minor) = match version {
        ..10_000 => (version / 1000, version / 100 % 10),
        _ => (version / 10_000, version / 100 % 100),
    };
    format!("{major}.{minor}.{}", version % 100)
}

#[cfg(test)]
mod tests {
    use super::{LEAST, written};

    #[test]
    fn versions_are_written_as_nccl_does() {
        for (code, expected) in
            [(LEAST, "2.7.0"), (2_804, "2.8.4"), (20_902, "2.9.2"), (22_005, "2.20.5"), (23_109, "2.31.9")]
        {
            assert_eq!(written(code), expected);
        }
    }
}
