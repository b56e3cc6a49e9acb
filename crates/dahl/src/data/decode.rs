//! JPEG and PNG files to floats of a given shape.

use super::input::{MAX_EXPANSION, open_file};
use crate::error::{Error, Result};
use dahl_kernels::Shape;
use image::imageops::FilterType;
use image::{DynamicImage, ImageDecoder, ImageFormat, ImageReader, Limits};
use std::io::{Cursor, Read};
use std::path::Path;

/// Larger files are taken for no images.
const MAX_FILE: u64 = 256 << 20;

/// An image that takes more bytes than this, decoded and while it is brought to its
/// size, is refused.
const MAX_DECODED: u64 = 1 << 30;

/// Resizing computes four floats for every pixel of an image that has the new height
/// and the old width.
const RESIZED_PIXEL: u64 = 16;
/// What making an image higher may take whatever the length of its file, which may be a few bytes
/// for a line of a million pixels.
const MAX_ENLARGING: u64 = 2 << 20;

/// A byte of deflate gives up to eight pixels a byte, of one bit each.
const MAX_RATIO: u64 = 8 * MAX_EXPANSION;

/// The marker of a JPEG before the codes of an image.
const START_OF_SCAN: u8 = 0xda;

/// To what images of many sizes are brought.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ImageOptions {
    /// The height in pixels.
    pub height: usize,
    /// The width in pixels.
    pub width: usize,
    /// 1 for grey, 3 for red, green and blue.
    pub channels: usize,
    /// The treatment of other aspect ratios.
    pub fit: Fit,
}

/// The treatment of an image with another aspect ratio.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fit {
    /// It is stretched.
    Stretch,
    /// The image is cropped on both sides.
    Crop,
}

impl Default for ImageOptions {
    /// 64x64 in colour, stretched.
    fn default() -> Self {
        Self { height: 64, width: 64, channels: 3, fit: Fit::Stretch }
    }
}

impl ImageOptions {
    /// The shape of a sample.
    pub fn shape(&self) -> Shape {
        Shape::new(&[self.channels, self.height, self.width])
    }

    /// Checks sizes and channels.
    ///
    /// # Errors
    /// [`Error::Config`] naming what cannot be.
    pub fn check(&self) -> Result<()> {
        for (key, size) in [("height", self.height), ("width", self.width)] {
            if !(1..=1 << 14).contains(&size) {
                return Err(Error::config(key, "1 to 16384 pixels", size));
            }
        }
        if ![1, 3].contains(&self.channels) {
            return Err(Error::config("channels", "1 or 3", self.channels));
        }
        Ok(())
    }
}

/// Reads an image file into `out`.
pub(super) fn decode_file(path: &Path, options: &ImageOptions, out: &mut [f32]) -> Result<()> {
    let (file, length) = open_file(path)?;
    if length > MAX_FILE {
        let expected = format!("at most {MAX_FILE} bytes");
        return Err(Error::data(path, "image", expected, length));
    }
    let mut bytes = Vec::with_capacity(length as usize);
    let read = file.take(length).read_to_end(&mut bytes);
    read.map_err(|source| Error::Io { path: path.to_owned(), source })?;
    decode(path, &bytes, options, out)
}

/// Decodes an image into `out`; `path` is for messages.
pub(super) fn decode(
    path: &Path,
    bytes: &[u8],
    options: &ImageOptions,
    out: &mut [f32],
) -> Result<()> {
    let image = decoded(path, bytes)?;
    let (width, height) = (options.width as u32, options.height as u32);
    let (needed, most) = resizing_bytes(&image, options, bytes.len() as u64);
    if needed > most {
        let expected = format!(
            "an image that takes at most {most} bytes while it is resized to {width}x{height}"
        );
        let found = format!("{}x{}, which takes {needed}", image.width(), image.height());
        return Err(Error::data(path, "image", expected, found));
    }
    let image = match options.fit {
        _ if (image.width(), image.height()) == (width, height) => image,
        Fit::Stretch => image.resize_exact(width, height, FilterType::Triangle),
        Fit::Crop => image.resize_to_fill(width, height, FilterType::Triangle),
    };
    if options.channels == 1 {
        let grey = image.into_luma8();
        out.iter_mut().zip(grey.as_raw()).for_each(|(x, &byte)| *x = f32::from(byte) / 255.0);
        return Ok(());
    }
    let colour = image.into_rgb8();
    let plane = options.width * options.height;
    for (i, pixel) in colour.as_raw().chunks_exact(3).enumerate() {
        for (channel, &byte) in pixel.iter().enumerate() {
            out[channel * plane + i] = f32::from(byte) / 255.0;
        }
    }
    Ok(())
}

/// How many bytes an image takes, with those that bringing it to its size adds, and how many it
/// may take: those of the image, of its pixels while they are resized and of the result, and what
/// a file of this length may take for being made higher. One that becomes lower never takes more.
fn resizing_bytes(image: &DynamicImage, options: &ImageOptions, file: u64) -> (u64, u64) {
    let [width, height] = [image.width(), image.height()].map(u64::from);
    let (new_width, new_height) = (options.width as u64, options.height as u64);
    let (wide, high) = match options.fit {
        Fit::Stretch => (new_width, new_height),
        // All of the image at the size of which a part is cut out.
        Fit::Crop if new_width * height >= new_height * width => {
            (new_width, (height * new_width).div_ceil(width))
        }
        Fit::Crop => ((width * new_height).div_ceil(height), new_height),
    };
    let pixel = u64::from(image.color().bytes_per_pixel());
    let product = |a: u64, b: u64, bytes: u64| a.saturating_mul(b).saturating_mul(bytes);
    let own = product(width, height, pixel);
    let (between, new) = (product(width, high, RESIZED_PIXEL), product(wide, high, pixel));
    let needed = own.saturating_add(between).saturating_add(new);
    let result = product(new_width, new_height, pixel);
    let enlarging = file.saturating_mul(2 * MAX_RATIO).saturating_add(MAX_ENLARGING);
    let pixels = product(width, height, RESIZED_PIXEL);
    let most = [pixels, result, enlarging].into_iter().fold(own, u64::saturating_add);
    (needed, most.min(MAX_DECODED))
}

fn decoded(path: &Path, bytes: &[u8]) -> Result<DynamicImage> {
    let bad =
        |expected: &str, found: &dyn std::fmt::Display| Error::data(path, "image", expected, found);
    let format = image::guess_format(bytes).ok();
    let (format, name) = match format {
        Some(format @ ImageFormat::Png) => (format, "a whole and undamaged PNG"),
        Some(format @ ImageFormat::Jpeg) => (format, "a whole and undamaged JPEG"),
        _ => return Err(bad("a JPEG or PNG file", &"neither")),
    };
    // The decoder fills what is missing of a JPEG with grey.
    if format == ImageFormat::Jpeg && !has_jpeg_end(bytes) {
        return Err(bad(name, &"no end of the image"));
    }
    // What a file of this length can hold at most, before memory is taken.
    let most = (bytes.len() as u64).saturating_mul(MAX_RATIO).min(MAX_DECODED);
    let mut limits = Limits::no_limits();
    // The decoder's own buffers come on top of the image.
    limits.max_alloc = Some(most.saturating_mul(2).saturating_add(1 << 20));
    let mut reader = ImageReader::with_format(Cursor::new(bytes), format);
    reader.limits(limits);
    let mut decoder = reader.into_decoder().map_err(|e| bad(name, &e))?;
    let (width, height) = decoder.dimensions();
    if width == 0 || height == 0 || decoder.total_bytes() > most {
        let expected = format!("an image of 1 to {most} bytes, as its file can hold");
        return Err(bad(&expected, &format_args!("{width}x{height}")));
    }
    let orientation = decoder.orientation();
    let mut image = DynamicImage::from_decoder(decoder).map_err(|e| bad(name, &e))?;
    // A camera that was held upright says so beside the pixels.
    if let Ok(orientation) = orientation {
        image.apply_orientation(orientation);
    }
    Ok(image)
}

/// Whether a JPEG has the marker of its end after an image, and not merely in a
/// segment: a camera puts a whole small JPEG into one.
fn has_jpeg_end(bytes: &[u8]) -> bool {
    let (mut at, mut seen) = (0, false);
    // Between segments, and after what a scan codes, is a marker: a byte of 0xff
    // that no 0 follows. What is not one is skipped, as decoders do.
    while let (Some(first), Some(&code)) = (bytes.get(at), bytes.get(at + 1)) {
        match (*first, code) {
            (0xff, 0xd9) if seen => return true,
            // Ends and begins of images, restarts, and one for private use have no
            // length; 0xff fills, and 0 says that the 0xff was part of the code.
            (0xff, 0x00 | 0x01 | 0xd0..=0xd9) => at += 2,
            (0xff, 0xff) => at += 1,
            (0xff, _) => {
                let (Some(&high), Some(&low)) = (bytes.get(at + 2), bytes.get(at + 3)) else {
                    return false;
                };
                seen |= code == START_OF_SCAN;
                at += 2 + usize::from(u16::from_be_bytes([high, low]));
            }
            _ => at += 1,
        }
    }
    false
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use crate::data::tests::Scratch;
    use image::{GrayImage, Luma, Rgb, RgbImage};

    pub(in crate::data) fn encoded(image: &DynamicImage, format: ImageFormat) -> Vec<u8> {
        let mut bytes = Cursor::new(Vec::new());
        image.write_to(&mut bytes, format).unwrap();
        bytes.into_inner()
    }

    pub(in crate::data) fn gradient(width: u32, height: u32) -> DynamicImage {
        let pixel = |x: u32, y: u32| Rgb([(x * 8) as u8, (y * 8) as u8, 77]);
        DynamicImage::ImageRgb8(RgbImage::from_fn(width, height, pixel))
    }

    fn read(bytes: &[u8], options: ImageOptions) -> Result<Vec<f32>> {
        let mut out = vec![f32::NAN; options.shape().elements()];
        decode(Path::new("a.png"), bytes, &options, &mut out)?;
        Ok(out)
    }

    fn options(height: usize, width: usize, channels: usize) -> ImageOptions {
        ImageOptions { height, width, channels, fit: Fit::Stretch }
    }

    #[test]
    fn colours_become_planes() {
        let png = encoded(&gradient(3, 2), ImageFormat::Png);
        let out = read(&png, options(2, 3, 3)).unwrap();
        let red: Vec<f32> = [0, 8, 16, 0, 8, 16].map(|x| x as f32 / 255.0).to_vec();
        let green: Vec<f32> = [0, 0, 0, 8, 8, 8].map(|x| x as f32 / 255.0).to_vec();
        assert_eq!(out[..6], red);
        assert_eq!(out[6..12], green);
        assert_eq!(out[12..], [77.0 / 255.0; 6]);
    }

    #[test]
    fn images_are_brought_to_size_and_channels() {
        let grey = DynamicImage::ImageLuma8(GrayImage::from_pixel(50, 20, Luma([51])));
        for format in [ImageFormat::Png, ImageFormat::Jpeg] {
            let bytes = encoded(&grey, format);
            for options in [options(4, 6, 1), options(30, 60, 3)] {
                for fit in [Fit::Stretch, Fit::Crop] {
                    let out = read(&bytes, ImageOptions { fit, ..options }).unwrap();
                    assert!(out.iter().all(|x| (x - 0.2).abs() < 0.005), "{format:?}");
                }
            }
        }
    }

    #[test]
    fn a_claim_beyond_the_file_is_refused() {
        let mut png = encoded(&gradient(3, 2), ImageFormat::Png);
        // The width, after signature, length and name of the first chunk; its
        // checksum follows after 9 more bytes.
        png[16..20].copy_from_slice(&0x3fff_ffffu32.to_be_bytes());
        let mut checksum = flate2::Crc::new();
        checksum.update(&png[12..29]);
        png[29..33].copy_from_slice(&checksum.sum().to_be_bytes());
        let error = read(&png, options(2, 3, 3)).unwrap_err().to_string();
        assert!(error.starts_with("a.png: image: expected "), "{error}");
    }

    /// Compresses well, and would take gigabytes while its size is changed.
    #[test]
    fn a_long_and_thin_image_is_refused_before_it_is_resized() {
        let line = GrayImage::from_raw(4_000_000, 1, vec![0; 4_000_000]).unwrap();
        let png = encoded(&DynamicImage::ImageLuma8(line), ImageFormat::Png);
        assert!(png.len() < 100_000, "{}", png.len());
        let check = |options: ImageOptions, needed: u64| {
            let error = read(&png, options).unwrap_err().to_string();
            let found = format!("found 4000000x1, which takes {needed}");
            assert!(error.starts_with("a.png: image: expected an image that takes"), "{error}");
            assert!(error.ends_with(&found), "{error}");
        };
        // The image itself, 4,000,000 x 64 pixels of 16 bytes, and the result.
        check(options(64, 64, 3), 4_000_000 + 4_000_000 * 64 * 16 + 64 * 64);
        // As high as requested, and so 16 times as wide.
        let cropped = ImageOptions { fit: Fit::Crop, ..options(16, 16, 1) };
        check(cropped, 4_000_000 + 4_000_000 * 16 * 16 + 64_000_000 * 16);
    }

    /// It was below the bound of all images, and took a gigabyte.
    #[test]
    fn a_file_of_a_few_bytes_takes_little_memory() {
        let line = GrayImage::from_raw(900_000, 1, vec![0; 900_000]).unwrap();
        let png = encoded(&DynamicImage::ImageLuma8(line), ImageFormat::Png);
        assert!(png.len() < 5_000, "{}", png.len());
        let error = read(&png, options(64, 64, 3)).unwrap_err().to_string();
        assert!(error.ends_with("found 900000x1, which takes 922504096"), "{error}");
        // A row of a scan that is made higher is not refused.
        let scan = (0..100_000u32).map(|i| (i.wrapping_mul(2_654_435_761) >> 24) as u8).collect();
        let row = GrayImage::from_raw(5_000, 20, scan).unwrap();
        let png = encoded(&DynamicImage::ImageLuma8(row), ImageFormat::Png);
        read(&png, options(224, 224, 1)).unwrap();
    }

    #[cfg(unix)]
    #[test]
    fn what_is_no_regular_file_is_not_opened() {
        let scratch = Scratch::new("no-file");
        let socket = scratch.path("x.png");
        let _bound = std::os::unix::net::UnixListener::bind(&socket).unwrap();
        let check = |path: &Path, found: &str| {
            let mut out = [0.0; 6];
            let error = decode_file(path, &options(2, 3, 1), &mut out).unwrap_err().to_string();
            assert!(error.ends_with(&format!("file: expected a regular file, found {found}")));
            assert!(error.starts_with(&path.display().to_string()), "{error}");
        };
        check(&socket, "a socket");
        check(Path::new("/dev/null"), "a device");
        check(&scratch.path(""), "a directory");
    }

    #[test]
    fn what_is_no_image_is_named() {
        let check = |bytes: &[u8], expected: &str| {
            assert_eq!(read(bytes, options(2, 3, 3)).unwrap_err().to_string(), expected);
        };
        check(b"hello", "a.png: image: expected a JPEG or PNG file, found neither");
        check(b"GIF89a......", "a.png: image: expected a JPEG or PNG file, found neither");
        let jpeg = encoded(&gradient(32, 32), ImageFormat::Jpeg);
        check(
            &jpeg[..jpeg.len() - 2],
            "a.png: image: expected a whole and undamaged JPEG, found no end of the image",
        );
    }

    /// A JPEG with a segment of a camera's notes before the image.
    fn with_notes(jpeg: &[u8], notes: &[u8]) -> Vec<u8> {
        let mut bytes = jpeg[..2].to_vec();
        bytes.extend([0xff, 0xe1]);
        bytes.extend((notes.len() as u16 + 2).to_be_bytes());
        bytes.extend(notes);
        bytes.extend(&jpeg[2..]);
        bytes
    }

    #[test]
    fn a_truncated_jpeg_with_a_thumbnail_is_not_whole() {
        let thumbnail = encoded(&gradient(8, 8), ImageFormat::Jpeg);
        assert!(thumbnail.ends_with(&[0xff, 0xd9]));
        let jpeg = encoded(&gradient(32, 32), ImageFormat::Jpeg);
        let whole = with_notes(&jpeg, &thumbnail);
        read(&whole, options(2, 3, 3)).unwrap();
        // What comes after the end is no part of the image.
        read(&[&whole[..], b"more"].concat(), options(2, 3, 3)).unwrap();
        for cut in [2, 10, 100] {
            let error = read(&whole[..whole.len() - cut], options(2, 3, 3)).unwrap_err();
            assert!(error.to_string().ends_with("found no end of the image"), "{error}");
        }
    }
}
