//! Vectors of the machine, behind one small trait.
//!
//! A tuned kernel is written once, generic over [`Simd`], and compiled for every
//! instruction set that this architecture has. [`Isa::run`] enters the one that
//! is asked for. What [`Vector`] offers is what kernels need, no more.
//!
//! Kernels spread the elements of a result over lanes; where a sum is spread, it
//! is over sixteen lanes whatever the width (see [`lanes`](crate::lanes)). So
//! instruction sets that multiply and add in one rounding give equal bits.
#![expect(unsafe_code, reason = "the module that calls vector instructions")]

#[cfg(target_arch = "aarch64")]
mod neon;
mod portable;
#[cfg(target_arch = "x86_64")]
mod x86;

use std::fmt;

/// An instruction set that kernels are compiled for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Isa {
    /// Whatever the compiler makes of plain code.
    Portable,
    /// x86-64 with AVX2 and FMA.
    Avx2,
    /// x86-64 with AVX-512 (F).
    Avx512,
    /// AArch64.
    Neon,
}

/// The most elements of a vector, over all instruction sets and element types.
pub(crate) const MAX_LANES: usize = 16;

impl Isa {
    /// All of them, the widest last.
    pub const ALL: [Isa; 4] = [Isa::Portable, Isa::Neon, Isa::Avx2, Isa::Avx512];

    /// The widest one that this machine has.
    pub fn detect() -> Self {
        let mut found = Self::ALL.into_iter().rev().filter(|isa| isa.is_available());
        found.next().unwrap_or(Isa::Portable)
    }

    /// Whether this machine has it.
    pub fn is_available(self) -> bool {
        match self {
            Isa::Portable => true,
            #[cfg(target_arch = "x86_64")]
            Isa::Avx2 => is_x86_feature_detected!("avx2") && is_x86_feature_detected!("fma"),
            #[cfg(target_arch = "x86_64")]
            Isa::Avx512 => is_x86_feature_detected!("avx512f") && Isa::Avx2.is_available(),
            #[cfg(target_arch = "aarch64")]
            Isa::Neon => true,
            #[allow(unreachable_patterns, reason = "which are left depends on the architecture")]
            _ => false,
        }
    }

    /// The name as it is written in files and flags.
    pub fn name(self) -> &'static str {
        match self {
            Isa::Portable => "portable",
            Isa::Avx2 => "avx2",
            Isa::Avx512 => "avx512",
            Isa::Neon => "neon",
        }
    }

    /// Runs `work` compiled for this instruction set.
    ///
    /// # Panics
    /// If the machine does not have it.
    #[inline]
    pub(crate) fn run<W: Work>(self, work: W) -> W::Output {
        assert!(self.is_available(), "this machine has no {self}");
        match self {
            // SAFETY: the machine has it, as was asserted.
            #[cfg(target_arch = "x86_64")]
            Isa::Avx2 => unsafe { x86::Avx2::enter(work) },
            // SAFETY: as above.
            #[cfg(target_arch = "x86_64")]
            Isa::Avx512 => unsafe { x86::Avx512::enter(work) },
            // SAFETY: as above.
            #[cfg(target_arch = "aarch64")]
            Isa::Neon => unsafe { neon::Neon::enter(work) },
            // SAFETY: every machine has it.
            _ => unsafe { portable::Portable::enter(work) },
        }
    }
}

impl fmt::Display for Isa {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

impl std::str::FromStr for Isa {
    type Err = String;
    fn from_str(s: &str) -> Result<Self, String> {
        let names = Self::ALL.map(Isa::name).join(", ");
        let found = Self::ALL.into_iter().find(|isa| isa.name() == s);
        found.ok_or_else(|| format!("unknown instruction set {s:?}: expected one of {names}"))
    }
}

/// Code that is compiled once an instruction set.
pub(crate) trait Work {
    type Output;
    /// Must be `#[inline(always)]`, and so must be what it calls with vectors:
    /// only what is inlined into [`Simd::enter`] uses the instructions.
    fn run<S: Simd>(self) -> Self::Output;
}

/// The vectors of an instruction set.
pub(crate) trait Simd: Copy {
    type F32: Vector<Elem = f32>;
    type F64: Vector<Elem = f64>;
    /// Runs `work`, compiled for this set, in a function of its own.
    ///
    /// # Safety
    /// The machine has the instructions.
    unsafe fn enter<W: Work>(work: W) -> W::Output;
    /// Says that an address will be needed soon. It need not be valid.
    #[inline(always)]
    fn prefetch<T>(_at: *const T) {}
}

/// A vector of floats.
pub(crate) trait Vector: Copy {
    type Elem: crate::Float;
    /// How many elements it has.
    const LANES: usize;
    fn splat(x: Self::Elem) -> Self;
    /// # Safety
    /// `LANES` elements from `from` on can be read.
    unsafe fn load(from: *const Self::Elem) -> Self;
    /// # Safety
    /// `LANES` elements from `to` on can be written.
    unsafe fn store(self, to: *mut Self::Elem);
    fn add(self, other: Self) -> Self;
    fn mul(self, other: Self) -> Self;
    /// `self * b + c`, rounded once where the instruction set can.
    fn mul_add(self, b: Self, c: Self) -> Self;
    /// 0 where it is below 0, itself elsewhere, NaN too.
    fn relu(self) -> Self;
    /// The larger of two, with what stands for it: the first of equal ones, NaN
    /// before all.
    fn better(best: (Self, Self), new: (Self, Self)) -> (Self, Self);

    #[inline(always)]
    fn zero() -> Self {
        Self::splat(<Self::Elem as crate::Float>::ZERO)
    }

    /// `N` vectors, the first elements of which are `step` apart. Not by a closure:
    /// one that is not inlined runs outside of its instruction set.
    ///
    /// # Safety
    /// They can be read.
    #[inline(always)]
    unsafe fn load_many<const N: usize>(from: *const Self::Elem, step: usize) -> [Self; N] {
        let mut vectors = [Self::zero(); N];
        for (i, vector) in vectors.iter_mut().enumerate() {
            // SAFETY: as the caller promises.
            *vector = unsafe { Self::load(from.add(i * step)) };
        }
        vectors
    }

    /// Copies a square of `LANES` × `LANES` with rows and columns exchanged;
    /// `lines` are the distances of the rows that are read and written. Rows that
    /// are written may be closer than they are long: of what they share the later
    /// one stays.
    ///
    /// # Safety
    /// Both squares are there, and do not overlap.
    #[inline(always)]
    unsafe fn transpose(from: *const Self::Elem, to: *mut Self::Elem, lines: [usize; 2]) {
        for j in 0..Self::LANES {
            for i in 0..Self::LANES {
                // SAFETY: inside of the squares.
                unsafe { *to.add(j * lines[1] + i) = *from.add(i * lines[0] + j) };
            }
        }
    }

    fn sub(self, other: Self) -> Self;
    /// 0 where `key` is 0 or below, itself elsewhere, where `key` is NaN too.
    fn gate(self, key: Self) -> Self;
    /// Itself where `a` and `b` are equal, 0 elsewhere.
    fn where_equal(self, a: Self, b: Self) -> Self;
    /// Every second element of two vectors behind each other, from the first and
    /// from the second on.
    fn unzip(self, next: Self) -> (Self, Self);
    /// The elements of two vectors by turns, as two vectors behind each other.
    fn zip(self, other: Self) -> (Self, Self);

    /// Small whole numbers as bytes.
    ///
    /// # Safety
    /// `LANES` bytes from `to` on can be written.
    unsafe fn store_bytes(self, to: *mut u8);
}

/// A float that vectors are made of.
pub(crate) trait Lane: crate::Float {
    type Vector<S: Simd>: Vector<Elem = Self>;
    /// A whole number that fits in 32 bits.
    fn to_offset(self) -> i32;
    /// A whole number below 2²⁴.
    fn from_offset(offset: i32) -> Self;
}

impl Lane for f32 {
    type Vector<S: Simd> = S::F32;

    #[inline(always)]
    fn to_offset(self) -> i32 {
        self as i32
    }

    #[inline(always)]
    fn from_offset(offset: i32) -> Self {
        offset as Self
    }
}

impl Lane for f64 {
    type Vector<S: Simd> = S::F64;

    #[inline(always)]
    fn to_offset(self) -> i32 {
        self as i32
    }

    #[inline(always)]
    fn from_offset(offset: i32) -> Self {
        offset as Self
    }
}

#[cfg(test)]
mod tests;
