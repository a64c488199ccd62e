//! A GPU with its memory, streams and events. What is made here goes when it is dropped, and all of
//! it with the process.

#![expect(unsafe_code, reason = "calls a foreign library")]

use std::{
    ffi::{c_int, c_void},
    ptr::null_mut,
};

use super::{
    Stop,
    runtime::{
        DEVICE_TO_DEVICE, DEVICE_TO_HOST, HOST_TO_DEVICE, Handle, NON_BLOCKING, NOT_READY,
        PEER_ACCESS_ALREADY_ENABLED, Runtime, Status,
    },
};

/// A GPU that the process may use.
#[derive(Debug)]
pub(super) struct Device<'r> {
    runtime: &'r Runtime,
    /// How the runtime calls it.
    pub(super) index: c_int,
    /// Its PCI address.
    pub(super) pci: String,
}

/// Memory of a GPU.
#[derive(Debug)]
pub(super) struct Buffer<'d> {
    device: &'d Device<'d>,
    at: *mut c_void,
    bytes: usize,
}

/// Memory of the host that a GPU reads and writes by itself.
#[derive(Debug)]
pub(super) struct Pinned<'d> {
    device: &'d Device<'d>,
    at: *mut c_void,
    bytes: usize,
}

/// What a GPU does one after the other.
#[derive(Debug)]
pub(super) struct Stream<'d> {
    device: &'d Device<'d>,
    handle: Handle,
}

/// A moment in a stream.
#[derive(Debug)]
pub(super) struct Event<'d> {
    device: &'d Device<'d>,
    handle: Handle,
}

impl<'r> Device<'r> {
    pub(super) fn new(runtime: &'r Runtime, index: c_int, pci: String) -> Device<'r> {
        Device { runtime, index, pci }
    }

    fn check(&self, status: Status, call: impl FnOnce() -> String) -> Result<(), Stop> {
        self.runtime.check(status, &self.pci, call)
    }

    /// Memory of this GPU, with whatever was in it before.
    pub(super) fn buffer(&self, bytes: usize) -> Result<Buffer<'_>, Stop> {
        let functions = self.runtime.at(self.index)?;
        let mut at = null_mut();
        // SAFETY: it writes one pointer.
        let status = unsafe { (functions.allocate)(&mut at, bytes) };
        self.check(status, || format!("Malloc of {} MiB", bytes >> 20))?;
        Ok(Buffer { device: self, at, bytes })
    }

    /// Pinned memory of the host, filled with zeros.
    pub(super) fn pinned(&self, bytes: usize) -> Result<Pinned<'_>, Stop> {
        self.runtime.at(self.index)?;
        let mut at: *mut c_void = null_mut();
        // SAFETY: it writes one pointer; then the memory is ours, and as long as was asked for.
        let status = unsafe { (self.runtime.allocate_host)(&mut at, bytes, 0) };
        self.check(status, || format!("pinned host memory of {} MiB", bytes >> 20))?;
        // SAFETY: the memory was just given to us with this length.
        unsafe { std::ptr::write_bytes(at.cast::<u8>(), 0, bytes) };
        Ok(Pinned { device: self, at, bytes })
    }

    /// A stream that waits for no other.
    pub(super) fn stream(&self) -> Result<Stream<'_>, Stop> {
        let functions = self.runtime.at(self.index)?;
        let mut handle = null_mut();
        // SAFETY: it writes one handle.
        let status = unsafe { (functions.create_stream)(&mut handle, NON_BLOCKING as u32) };
        self.check(status, || "StreamCreateWithFlags".into())?;
        Ok(Stream { device: self, handle })
    }

    pub(super) fn event(&self) -> Result<Event<'_>, Stop> {
        let functions = self.runtime.at(self.index)?;
        let mut handle = null_mut();
        // SAFETY: it writes one handle.
        let status = unsafe { (functions.create_event)(&mut handle) };
        self.check(status, || "EventCreate".into())?;
        Ok(Event { device: self, handle })
    }

    /// Lets this GPU read and write the other's memory; false where the two have no direct way.
    pub(super) fn reaches(&self, other: &Device<'_>) -> Result<bool, Stop> {
        let functions = self.runtime.at(self.index)?;
        let mut can = 0;
        // SAFETY: it writes one int.
        let status = unsafe { (functions.can_access_peer)(&mut can, self.index, other.index) };
        self.check(status, || format!("DeviceCanAccessPeer of {}", other.pci))?;
        if can == 0 {
            return Ok(false);
        }
        // SAFETY: flags have to be 0.
        let status = unsafe { (functions.enable_peer_access)(other.index, 0) };
        if status != PEER_ACCESS_ALREADY_ENABLED {
            self.check(status, || format!("DeviceEnablePeerAccess of {}", other.pci))?;
        }
        Ok(true)
    }
}

impl Buffer<'_> {
    /// Its address on the GPU, for a library that is given it.
    pub(super) fn pointer(&self) -> *mut c_void {
        self.at
    }
}

impl Pinned<'_> {
    /// What is in it, after the stream has done all it was told.
    pub(super) fn bytes(&self, after: &Stream<'_>) -> Result<&[u8], Stop> {
        after.synchronize()?;
        // SAFETY: the memory is ours and as long, and the GPU has ended what it was told to write.
        Ok(unsafe { std::slice::from_raw_parts(self.at.cast(), self.bytes) })
    }

    /// The same, to be written.
    pub(super) fn bytes_mut(&mut self, after: &Stream<'_>) -> Result<&mut [u8], Stop> {
        after.synchronize()?;
        // SAFETY: as above, and nobody else has it while it is borrowed here.
        Ok(unsafe { std::slice::from_raw_parts_mut(self.at.cast(), self.bytes) })
    }
}

impl<'d> Stream<'d> {
    /// For a library that is given it.
    pub(super) fn handle(&self) -> Handle {
        self.handle
    }

    /// Fills a buffer with a byte.
    pub(super) fn fill(&self, to: &Buffer<'_>, byte: u8) -> Result<(), Stop> {
        let functions = self.device.runtime.at(self.device.index)?;
        // SAFETY: the buffer is as long as it says.
        let status = unsafe { (functions.set_bytes)(to.at, byte.into(), to.bytes, self.handle) };
        self.device.check(status, || format!("MemsetAsync of {} MiB", to.bytes >> 20))
    }

    /// Copies within a GPU.
    pub(super) fn copy(
        &self,
        (to, to_at): (&Buffer<'_>, usize),
        (from, from_at): (&Buffer<'_>, usize),
        bytes: usize,
    ) -> Result<(), Stop> {
        assert!(to_at + bytes <= to.bytes && from_at + bytes <= from.bytes, "a copy within its buffers");
        self.transfer(
            to.at.wrapping_byte_add(to_at),
            from.at.wrapping_byte_add(from_at),
            bytes,
            DEVICE_TO_DEVICE,
        )
    }

    /// Copies from the host.
    pub(super) fn upload(
        &self,
        (to, to_at): (&Buffer<'_>, usize),
        from: &Pinned<'_>,
        bytes: usize,
    ) -> Result<(), Stop> {
        assert!(to_at + bytes <= to.bytes && bytes <= from.bytes, "a copy within its buffers");
        self.transfer(to.at.wrapping_byte_add(to_at), from.at, bytes, HOST_TO_DEVICE)
    }

    /// Copies to the host, from a place in the buffer.
    pub(super) fn download(
        &self,
        to: &Pinned<'_>,
        (from, from_at): (&Buffer<'_>, usize),
        bytes: usize,
    ) -> Result<(), Stop> {
        assert!(bytes <= to.bytes && from_at + bytes <= from.bytes, "a copy within its buffers");
        self.transfer(to.at, from.at.wrapping_byte_add(from_at), bytes, DEVICE_TO_HOST)
    }

    /// Copies to another GPU's memory.
    pub(super) fn copy_peer(&self, to: &Buffer<'_>, from: &Buffer<'_>, bytes: usize) -> Result<(), Stop> {
        assert!(bytes <= to.bytes && bytes <= from.bytes, "a copy within its buffers");
        let functions = self.device.runtime.at(self.device.index)?;
        // SAFETY: both buffers are as long, on the devices that are named.
        let status = unsafe {
            (functions.copy_peer)(to.at, to.device.index, from.at, from.device.index, bytes, self.handle)
        };
        self.device.check(status, || format!("MemcpyPeerAsync of {} MiB to {}", bytes >> 20, to.device.pci))
    }

    fn transfer(&self, to: *mut c_void, from: *const c_void, bytes: usize, kind: c_int) -> Result<(), Stop> {
        let functions = self.device.runtime.at(self.device.index)?;
        // SAFETY: the callers have seen that both places hold as many bytes. Memory is freed by
        // functions that wait for the GPU first.
        let status = unsafe { (functions.copy)(to, from, bytes, kind, self.handle) };
        self.device.check(status, || format!("MemcpyAsync of {} MiB", bytes >> 20))
    }

    /// Notes the moment in which everything before it is done.
    pub(super) fn record(&self, event: &Event<'_>) -> Result<(), Stop> {
        let functions = self.device.runtime.at(self.device.index)?;
        // SAFETY: both handles are alive, and of this device.
        let status = unsafe { (functions.record)(event.handle, self.handle) };
        self.device.check(status, || "EventRecord".into())
    }

    /// Lets what comes after it wait for a moment of another stream.
    pub(super) fn wait(&self, event: &Event<'_>) -> Result<(), Stop> {
        let functions = self.device.runtime.at(self.device.index)?;
        // SAFETY: both handles are alive; flags have to be 0.
        let status = unsafe { (functions.wait_event)(self.handle, event.handle, 0) };
        self.device.check(status, || "StreamWaitEvent".into())
    }

    /// Whether it has done all it was told.
    pub(super) fn is_idle(&self) -> Result<bool, Stop> {
        let functions = self.device.runtime.at(self.device.index)?;
        // SAFETY: the handle is alive.
        let status = unsafe { (functions.query)(self.handle) };
        if status == NOT_READY {
            return Ok(false);
        }
        self.device.check(status, || "StreamQuery".into())?;
        Ok(true)
    }

    /// Waits until it has done all it was told.
    pub(super) fn synchronize(&self) -> Result<(), Stop> {
        let functions = self.device.runtime.at(self.device.index)?;
        // SAFETY: the handle is alive.
        let status = unsafe { (functions.synchronize)(self.handle) };
        self.device.check(status, || "StreamSynchronize".into())
    }

    /// How long the GPU takes for what `enqueue` tells this stream, in seconds.
    pub(super) fn time(
        &self,
        [start, end]: [&Event<'_>; 2],
        enqueue: impl FnOnce() -> Result<(), Stop>,
    ) -> Result<f64, Stop> {
        self.record(start)?;
        enqueue()?;
        self.record(end)?;
        end.seconds_since(start)
    }
}

impl Event<'_> {
    /// Waits for it; how long after `start` it was, in seconds.
    pub(super) fn seconds_since(&self, start: &Event<'_>) -> Result<f64, Stop> {
        let functions = self.device.runtime.at(self.device.index)?;
        // SAFETY: the handle is alive.
        let status = unsafe { (functions.await_event)(self.handle) };
        self.device.check(status, || "EventSynchronize".into())?;
        let mut milliseconds = 0.0;
        // SAFETY: both handles are alive and of one device, and it writes one float.
        let status = unsafe { (functions.elapsed)(&mut milliseconds, start.handle, self.handle) };
        self.device.check(status, || "EventElapsedTime".into())?;
        Ok(f64::from(milliseconds) / 1000.0)
    }
}

impl Drop for Buffer<'_> {
    fn drop(&mut self) {
        if let Ok(functions) = self.device.runtime.at(self.device.index) {
            // SAFETY: it was allocated by this runtime and is freed once; it waits for the GPU.
            unsafe { (functions.free)(self.at) };
        }
    }
}

impl Drop for Pinned<'_> {
    fn drop(&mut self) {
        // SAFETY: it was allocated by this runtime and is freed once; it waits for the GPU.
        unsafe { (self.device.runtime.free_host)(self.at) };
    }
}
