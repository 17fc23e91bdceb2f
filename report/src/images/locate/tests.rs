//! Where images are found, and what is refused: real and made ones.

use crate::images::{Image, ImageAddress};
use uprof::cold::Code;
use uprof::placement::{NotLocated, locate, start};

/// Code of this very test program: `count` records from its text, as if it had been moved by `bias`.
fn own_code(image: &Image, bias: u64, count: u64) -> Vec<Code> {
    let text = image.section_range(".text").unwrap();
    let every = (text.1 / (count + 1)) & !255;
    let codes = (1..=count).map(|number| {
        let address = ImageAddress((text.0.0 + number * every) & !255);
        Code {
            time_ns: number,
            space: 0,
            address: address.0.wrapping_add(bias),
            bytes: image.bytes_at(address, 256).unwrap().to_vec(),
        }
    });
    codes.collect()
}

fn own_image() -> Image {
    Image::open(&std::env::current_exe().unwrap()).unwrap()
}

/// An ELF file of one segment of code, linked at `address`; without sections.
fn made(address: u64, text: &[u8]) -> Image {
    let mut file = vec![0; 4096];
    file[..6].copy_from_slice(b"\x7fELF\x02\x01");
    file[6] = 1;
    let mut put = |at: usize, bytes: &[u8]| file[at..at + bytes.len()].copy_from_slice(bytes);
    put(16, &2_u16.to_le_bytes());
    put(18, &62_u16.to_le_bytes());
    put(20, &1_u32.to_le_bytes());
    put(32, &64_u64.to_le_bytes());
    put(52, &64_u16.to_le_bytes());
    put(54, &56_u16.to_le_bytes());
    put(56, &1_u16.to_le_bytes());
    put(58, &64_u16.to_le_bytes());
    put(64, &1_u32.to_le_bytes());
    put(68, &5_u32.to_le_bytes());
    put(72, &4096_u64.to_le_bytes());
    put(80, &address.to_le_bytes());
    put(96, &(text.len() as u64).to_le_bytes());
    put(104, &(text.len() as u64).to_le_bytes());
    file.extend(text);
    Image::from_bytes("made", file).unwrap()
}

/// Bytes that are nowhere the same.
fn noise(seed: u64, count: usize) -> Vec<u8> {
    let mut random = fastrand::Rng::with_seed(seed);
    (0..count).map(|_| random.u8(..)).collect()
}

fn code_at(address: u64, bytes: &[u8]) -> Vec<Code> {
    let chunks = bytes.chunks(256).enumerate().map(|(number, bytes)| Code {
        time_ns: 0,
        space: 0,
        address: address + number as u64 * 256,
        bytes: bytes.to_vec(),
    });
    chunks.collect()
}

#[test]
fn a_real_image_is_found_wherever_it_was_moved() {
    let image = own_image();
    for bias in [
        0,
        0x1000,
        0x5555_5555_4000,
        0xffff_ffff_9a40_0000,
        0_u64.wrapping_sub(0x3000),
    ] {
        let found = locate(&image, &own_code(&image, bias, 20)).unwrap();
        assert_eq!(found.bias, bias);
        assert_eq!(found.agreement.other, 0);
        assert!(found.agreement.same >= 40, "{:?}", found.agreement);
    }
}

#[test]
fn a_kernel_begins_with_its_code_not_with_each_processors_data() {
    let mut image = made(0xffff_ffff_8100_0000, &noise(6, 4096))
        .bytes()
        .to_vec();
    let (code, rest) = (image[64..120].to_vec(), 120..176);
    image[56] = 2;
    image[rest].copy_from_slice(&code);
    // The first one is data at 0.
    image[68] = 6;
    image[80..88].fill(0);
    let image = Image::from_bytes("kernel", image).unwrap();
    assert_eq!(start(&image, 0x2f00_0000), 0xffff_ffff_b000_0000);
    let bias = image.segments().bias_of_load_address(0xffff_ffff_b000_0000);
    assert_eq!(bias, Some(0x2f00_0000));
}

#[test]
fn another_image_is_refused() {
    let image = own_image();
    let code = own_code(&image, 0x7000, 20);
    let other = made(0x40_0000, &noise(7, 1 << 20));
    assert!(matches!(
        locate(&other, &code),
        Err(NotLocated::Foreign { .. })
    ));
    // Another build of the same: a part of its code has moved on by a few bytes.
    let text = noise(1, 1 << 16);
    let mut next = text[..0x2000].to_vec();
    next.extend(noise(2, 16));
    next.extend(&text[0x2000..]);
    let found = locate(&made(0x40_0000, &next), &code_at(0x40_0000, &text));
    let Err(NotLocated::Doubtful { agreement, .. }) = found else {
        panic!("{found:?}")
    };
    assert!(
        agreement.same == 0x2000 / 64 && agreement.other > 300,
        "{agreement:?}"
    );
}

#[test]
fn relocations_in_code_are_no_difference_and_other_changes_are() {
    let text = noise(3, 0x4000);
    let image = made(0xffff_ffff_8100_0000, &text);
    let bias = 0x1a40_0000_u64;
    let mut moved = text.clone();
    for at in (20..0x3f00).step_by(50) {
        let own = u32::from_le_bytes(text[at..at + 4].try_into().unwrap());
        // As Linux's boot code does: absolute addresses, and those relative to each processor's data.
        let new = match at % 100 {
            20 => own.wrapping_add(bias as u32),
            _ => own.wrapping_sub(bias as u32),
        };
        moved[at..at + 4].copy_from_slice(&new.to_le_bytes());
    }
    let found = locate(&image, &code_at(0xffff_ffff_8100_0000 + bias, &moved)).unwrap();
    assert_eq!(found.bias, bias);
    // An address that lies over the border of two pieces is not seen whole.
    assert!(
        found.agreement.other * 8 < found.agreement.same,
        "{:?}",
        found.agreement
    );
    for at in (20..0x3f00).step_by(50) {
        moved[at] ^= 0x55;
    }
    assert!(locate(&image, &code_at(0xffff_ffff_8100_0000 + bias, &moved)).is_err());
}

#[test]
fn what_is_twice_in_the_guest_or_in_the_image_is_not_guessed() {
    let text = noise(4, 0x4000);
    let image = made(0x10_0000, &text);
    // Two processes with the same program, at different places.
    let mut code = code_at(0x7000_0010_0000, &text);
    code.truncate(30);
    code.extend(code_at(0x7fff_0010_0000, &text).into_iter().take(30));
    let found = locate(&image, &code);
    assert!(
        matches!(found, Err(NotLocated::Ambiguous { .. })),
        "{found:?}"
    );
    // An image that is the same function on each page.
    let page = noise(5, 4096);
    let image = made(0x10_0000, &page.repeat(64));
    assert!(locate(&image, &code_at(0x7000_0000, &page)).is_err());
    // Twice only: each place has all votes.
    let image = made(0x10_0000, &page.repeat(2));
    let found = locate(&image, &code_at(0x7000_0000, &page));
    assert!(
        matches!(found, Err(NotLocated::Ambiguous { .. })),
        "{found:?}"
    );
    // Padding, and pages that a hypervisor fills, have no vote.
    let image = made(0x10_0000, &[0xcc; 0x4000]);
    assert_eq!(
        locate(&image, &code_at(0x10_0000, &[0xcc; 0x1000])),
        Err(NotLocated::Foreign { pieces: 0 })
    );
}

#[test]
fn the_first_place_is_found_with_the_second_image_beside_it() {
    let (kernel, app) = (noise(8, 0x3000), noise(9, 0x2000));
    let mut code = code_at(0xffff_ffff_9000_0000, &kernel);
    code.extend(code_at(0x12_3456_7000, &app));
    let found = |text: &[u8], address| locate(&made(address, text), &code).unwrap().bias;
    assert_eq!(found(&kernel, 0xffff_ffff_8000_0000), 0x1000_0000);
    assert_eq!(found(&app, 0), 0x12_3456_7000);
}

#[test]
fn much_code_and_a_large_image_take_bounded_time() {
    let image = made(0, &noise(10, 4 << 20));
    let mut code = code_at(0x1000_0000, &noise(11, 1 << 20));
    code.iter_mut()
        .for_each(|code| code.bytes.resize(100_000, 1));
    let began = std::time::Instant::now();
    assert!(locate(&image, &code).is_err());
    assert!(began.elapsed().as_secs() < 30);
    // A segment that wraps around.
    let image = made(u64::MAX - 0xfff, &noise(12, 0x4000));
    assert!(locate(&image, &code).is_err());
}
