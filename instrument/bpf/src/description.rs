//! What is known of a function: what it is for, and which of its arguments are of interest.

/// What a function does, as far as it matters here. The numbers are those of `enum class` in `trace.bpf.c`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
#[repr(u8)]
pub enum Class {
    /// Nothing that is looked at: it is counted.
    #[default]
    Other = 0,
    /// Starts a kernel or a graph.
    Launch = 1,
    /// Copies or fills memory.
    Copy = 2,
    /// Waits for a queue.
    Wait = 3,
    /// Waits for all queues.
    WaitAll = 4,
    /// Allocates memory.
    Alloc = 5,
    /// Frees memory.
    Free = 6,
    /// Counts another reference to memory.
    Retain = 7,
    /// Gives a kernel of a name.
    Kernel = 8,
    /// Asks for an entry point by its name.
    Asks = 9,
    /// Records an event in a queue.
    Record = 10,
    /// Waits for an event.
    WaitEvent = 11,
}

impl Class {
    /// True if the function of that cookie is more than counted.
    #[must_use]
    pub fn is_known_by(cookie: u64) -> bool {
        cookie >> 16 & 0x1f != Self::Other as u64
    }
}

/// Number that stands for the value returned, or for "always", instead of an argument.
pub const RETURNED: u8 = 15;

/// Number of the queue's argument that stands for the one in the launch configuration that is the first argument.
pub const CONFIGURED_QUEUE: u8 = 14;

/// The queue is not known: only a wait for all queues ends what is given to it.
pub const UNKNOWN_QUEUE: u8 = 15;

/// What is known of a function. Arguments are numbered from 1 on; 0 means that there is none.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Description {
    /// Its name, with version (`_v2`), without `_ptsz` and `_ptds`.
    pub name: &'static str,
    /// What it does.
    pub class: Class,
    /// The argument that is a size.
    pub size: u8,
    /// An argument by which it is to be multiplied.
    pub factor: u8,
    /// Bytes that one of them stands for, 0 to 7.
    pub unit_bytes: u8,
    /// The kernel, the memory, the event; or where these are written to; or [`RETURNED`].
    pub handle: u8,
    /// The argument that is a name.
    pub text: u8,
    /// The queue or stream, or [`CONFIGURED_QUEUE`], or [`UNKNOWN_QUEUE`]; if 0, the default stream.
    pub queue: u8,
    /// The argument that says whether it waits for its own work, or [`RETURNED`] if it always does.
    pub blocking: u8,
}

impl Description {
    /// The name with nothing known of it.
    #[must_use]
    pub const fn of(name: &'static str, class: Class) -> Self {
        Self {
            name,
            class,
            size: 0,
            factor: 0,
            unit_bytes: 1,
            handle: 0,
            text: 0,
            queue: 0,
            blocking: 0,
        }
    }

    /// With an argument that is a size in bytes.
    #[must_use]
    pub const fn size(mut self, argument: u8) -> Self {
        self.size = argument;
        self
    }

    /// The size is times that argument.
    #[must_use]
    pub const fn times(mut self, argument: u8) -> Self {
        self.factor = argument;
        self
    }

    /// The size is in units of that many bytes.
    #[must_use]
    pub const fn unit(mut self, bytes: u8) -> Self {
        self.unit_bytes = bytes;
        self
    }

    /// With a handle.
    #[must_use]
    pub const fn handle(mut self, argument: u8) -> Self {
        self.handle = argument;
        self
    }

    /// With a name.
    #[must_use]
    pub const fn text(mut self, argument: u8) -> Self {
        self.text = argument;
        self
    }

    /// With a queue.
    #[must_use]
    pub const fn queue(mut self, argument: u8) -> Self {
        self.queue = argument;
        self
    }

    /// It waits if the argument is not 0.
    #[must_use]
    pub const fn blocking(mut self, argument: u8) -> Self {
        self.blocking = argument;
        self
    }

    /// The cookie of a probe on `symbol`, which is function number `index`. `trace.bpf.c` has the same layout.
    #[must_use]
    pub fn cookie(&self, index: u16, symbol: &str) -> u64 {
        let is_per_thread = symbol.ends_with("_ptsz") || symbol.ends_with("_ptds");
        let field = |value: u8, at: u32| u64::from(value) << at;
        u64::from(index)
            | field(self.class as u8, 16)
            | field(self.size, 21)
            | field(self.factor, 25)
            | field(self.unit_bytes, 29)
            | field(self.handle, 32)
            | field(self.text, 36)
            | field(self.queue, 40)
            | field(self.blocking, 44)
            | field(u8::from(is_per_thread), 48)
            | field(u8::from(returns_handle(symbol)), 49)
            | field(u8::from(returns_nothing(symbol)), 50)
    }
}

/// True if the function gives a handle or an address, and 0 if it fails. Others give 0 if they succeed.
fn returns_handle(symbol: &str) -> bool {
    let creates = symbol.starts_with("clCreate") && symbol != "clCreateKernelsInProgram"
        || symbol.starts_with("clGetExtensionFunctionAddress")
        || ["clLinkProgram", "clSVMAlloc"].contains(&symbol);
    let maps = symbol.starts_with("clEnqueueMap");
    creates && symbol != "clCreateSubDevices" || maps
}

/// True if what the function gives does not tell whether it failed.
fn returns_nothing(symbol: &str) -> bool {
    [
        "clSVMFree",
        "hipGetErrorString",
        "hipGetErrorName",
        "hipGetLastError",
        "hipPeekAtLastError",
    ]
    .contains(&symbol)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cookie_holds_all_that_the_probe_needs() {
        let launch = Description::of("cuLaunchKernel", Class::Launch).handle(1).queue(9);
        let cookie = launch.cookie(0x1234, "cuLaunchKernel_ptsz");
        assert_eq!(cookie & 0xffff, 0x1234);
        assert_eq!(cookie >> 16 & 0x1f, 1);
        assert_eq!((cookie >> 32 & 15, cookie >> 40 & 15, cookie >> 48), (1, 9, 1));
        assert!(returns_handle("clCreateBuffer") && returns_handle("clEnqueueMapBuffer"));
        assert!(!returns_handle("clCreateKernelsInProgram") && !returns_handle("cuMemAlloc_v2"));
    }
}
