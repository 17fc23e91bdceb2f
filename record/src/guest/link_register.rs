//! Finds out whether AArch64 code keeps frame pointers, by how its functions save the link register.
//!
//! Code without frame pointers doesn't touch x29, which then still points to a valid frame of a distant caller. So the
//! frame itself shows nothing. A function that calls others has to save x30; with frame pointers it saves x29 beside
//! it. Source: Procedure Call Standard for the Arm 64-bit Architecture, "The Frame Pointer"; Arm Architecture
//! Reference Manual, STP and STR.

const FRAME_POINTER: u32 = 29;
const LINK: u32 = 30;
const STACK_POINTER: u32 = 31;

/// Whether the function whose code ends at a return address saved x29 with x30; `None` if it doesn't save x30 in
/// `code`.
pub(crate) fn is_saved_with_frame_pointer(code: &[u8]) -> Option<bool> {
    let words = code.rchunks_exact(4);
    let mut words = words.filter_map(|bytes| Some(u32::from_le_bytes(bytes.try_into().ok()?)));
    words.find_map(|word| {
        let (first, base, second) = (word & 31, word >> 5 & 31, word >> 10 & 31);
        let is_pair = word & 0xfe40_0000 == 0xa800_0000;
        let is_single = word & 0xffc0_0000 == 0xf900_0000 || word & 0xffe0_0c00 == 0xf800_0c00;
        let saves = is_pair && (first == LINK || second == LINK) || is_single && first == LINK;
        (saves && base == STACK_POINTER).then_some(is_pair && first == FRAME_POINTER)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(words: &[u32]) -> Option<bool> {
        let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
        is_saved_with_frame_pointer(&bytes)
    }

    #[test]
    fn the_nearest_function_before_the_return_address_counts() {
        let with = [0xa9be_7bfd, 0x9100_03fd]; // stp x29, x30, [sp, #-32]!; mov x29, sp
        let call = 0x97ff_fff0; // bl
        assert_eq!(of(&[with[0], with[1], call]), Some(true));
        assert_eq!(
            of(&[0xa901_7bfd, call]),
            Some(true),
            "stp x29, x30, [sp, #16]"
        );
        for without in [
            0xf81f_0ffe, // str x30, [sp, #-16]!
            0xf900_07fe, // str x30, [sp, #8]
            0xa9be_4ffe, // stp x30, x19, [sp, #-32]!
        ] {
            assert_eq!(of(&[with[0], with[1], call, without, call]), Some(false));
        }
        // Loads of x30, and stores of other registers or to other addresses, don't count.
        assert_eq!(
            of(&[0xa8c2_7bfd, 0xf941_03fe, 0xa900_7bf3, 0xa900_781d, call]),
            Some(false)
        );
        assert_eq!(of(&[0xa8c2_7bfd, 0xf941_03fe, 0xa900_781d, call]), None);
        assert_eq!(of(&[]), None);
    }
}
