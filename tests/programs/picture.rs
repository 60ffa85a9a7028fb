//! A picture outside browsers, rendered by librsvg as in the image viewers of most desktops: with
//! Debian's `rsvg-convert`, if it is installed (hack/test does that).

use std::collections::BTreeMap;
use std::io::Read;
use std::ops::Range;
use std::process::Command;

type Colour = [u8; 3];

/// Exclusive CPUs of the README's picture: colour of the container, and how many it has.
const EXCLUSIVE: [(Colour, usize); 3] =
    [([0xe6, 0x9f, 0x00], 6), ([0x56, 0xb4, 0xe9], 10), ([0x00, 0x9e, 0x73], 8)];
const PAPER: Colour = [0xff; 3];
/// Width and height of a CPU's cell, in pixels.
const SIDE: usize = 34;

/// The picture is the README's, which the program draws (`tests/it/simulate.rs`).
#[test]
fn a_picture_is_readable_without_a_browser() {
    let file = concat!(env!("CARGO_MANIFEST_DIR"), "/docs/images/node.svg");
    // Prints a PNG.
    let Ok(output) = Command::new("rsvg-convert").arg(file).output() else {
        println!("skipped: a picture outside browsers: rsvg-convert is not installed");
        return;
    };
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let image = Image::decode(&output.stdout);

    let mut count: BTreeMap<Colour, usize> = BTreeMap::new();
    for pixel in image.rows.iter().flatten() {
        *count.entry(*pixel).or_default() += 1;
    }
    let most = count.iter().max_by_key(|(_, pixels)| **pixels).unwrap();
    assert_eq!((*most.0, image.rows[3][3]), (PAPER, PAPER), "the background");
    for (colour, cpus) in EXCLUSIVE {
        // A letter and a number cover a part of each cell.
        let least = cpus * SIDE * SIDE / 2;
        assert!(count.get(&colour).is_some_and(|pixels| *pixels > least), "{colour:x?}");
    }
    // The first pixels of each text: x from its start, y above its base line.
    for (what, x, y, paper) in [
        ("the headline", 12, 30, PAPER),
        ("a frame's title", 32, 82, [0xf6, 0xf7, 0xf8]),
        ("a container's name", 46, 244, PAPER),
    ] {
        let (darkest, lightest) = image.extremes(x..x + 60, y - 9..y);
        let ink: usize = darkest.iter().map(|part| usize::from(*part)).sum();
        assert!(ink < 3 * 0x40, "{what} is {darkest:x?}");
        assert_eq!(lightest, paper, "behind {what}");
    }
}

struct Image {
    rows: Vec<Vec<Colour>>,
}

impl Image {
    /// Decodes a PNG as cairo writes it: 8 bits a channel, with or without alpha, not interlaced. A
    /// crate for all PNGs would add a second version of the inflater in [`flate2`].
    fn decode(png: &[u8]) -> Image {
        let number = |at: usize| u32::from_be_bytes(png[at..at + 4].try_into().unwrap()) as usize;
        let width = number(16);
        let kind = &png[24..29];
        let channels = match kind {
            [8, 2, 0, 0, 0] => 3,
            [8, 6, 0, 0, 0] => 4,
            _ => unreachable!("a PNG of another kind: {kind:?}"),
        };
        // Chunks follow the signature: length, type, data, checksum.
        let mut packed = Vec::new();
        let mut at = 8;
        while at < png.len() {
            let data = at + 8..at + 8 + number(at);
            if &png[at + 4..at + 8] == b"IDAT" {
                packed.extend_from_slice(&png[data.clone()]);
            }
            at = data.end + 4;
        }
        let mut lines = Vec::new();
        flate2::read::ZlibDecoder::new(&packed[..]).read_to_end(&mut lines).unwrap();
        let mut above = vec![0; width * channels];
        let rows = lines.chunks(1 + width * channels).map(|line| {
            above = unfiltered(line[0], &line[1..], &above, channels);
            above.chunks(channels).map(|pixel| pixel[..3].try_into().unwrap()).collect()
        });
        Image { rows: rows.collect() }
    }

    fn extremes(&self, x: Range<usize>, y: Range<usize>) -> (Colour, Colour) {
        let pixels = self.rows[y].iter().flat_map(|row| &row[x.clone()]);
        let mut pixels: Vec<Colour> = pixels.copied().collect();
        pixels.sort_by_key(|pixel| pixel.iter().map(|part| u32::from(*part)).sum::<u32>());
        (pixels[0], pixels[pixels.len() - 1])
    }
}

/// A line's bytes: each is stored as its difference from those to its left and above it (PNG
/// specification, section 9).
fn unfiltered(filter: u8, line: &[u8], above: &[u8], channels: usize) -> Vec<u8> {
    let mut bytes: Vec<u8> = Vec::with_capacity(line.len());
    for (at, byte) in line.iter().enumerate() {
        let before = |bytes: &[u8]| at.checked_sub(channels).map_or(0, |at| bytes[at]);
        let left = before(&bytes);
        let up = above[at];
        let corner = before(above);
        let expected = match filter {
            0 => 0,
            1 => left,
            2 => up,
            3 => left.midpoint(up),
            _ => {
                let estimate = i16::from(left) + i16::from(up) - i16::from(corner);
                let distance = |byte: &u8| (estimate - i16::from(*byte)).abs();
                [left, up, corner].into_iter().min_by_key(distance).unwrap_or_default()
            }
        };
        bytes.push(byte.wrapping_add(expected));
    }
    bytes
}
