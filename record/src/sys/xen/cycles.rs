//! The processor's cycle counter, by which Xen stamps the records of its trace.

/// The counter, as a PV dom0 and Xen read it; `None` on a processor where Xen's records have no such stamp.
pub fn cycles() -> Option<u64> {
    #[cfg(target_arch = "x86_64")]
    {
        // SAFETY: every x86-64 processor has the instruction. It waits for what was read before.
        unsafe { std::arch::x86_64::_mm_lfence() };
        // SAFETY: every x86-64 processor has the instruction, and Linux lets programs use it.
        Some(unsafe { std::arch::x86_64::_rdtsc() })
    }
    #[cfg(not(target_arch = "x86_64"))]
    None
}
