//! Typed tensors in arenas, and views of them.
//!
//! A [`Tensor`] owns its elements' bytes in an [`Arena`] for as long as the
//! arena is not reset; a [`TensorView`] looks at elements with strides, so that
//! slices, rows, columns and transposes cost no copy. Element and rank are in
//! the types: tensors of different ranks or elements do not mix, and nothing
//! broadcasts.
//!
//! Access is plain borrowing: any number of readers or one writer.
//!
//! ```
//! use dahl::tensor::{Arena, Matrix};
//! let arena = Arena::new();
//! let mut m = Matrix::from_fn(&arena, [2, 3], |[i, j]| (10 * i + j) as f32);
//! m[[1, 2]] = 7.5;
//! assert_eq!(m.column(2).to_vec(), [2.0, 7.5]);
//! assert_eq!(format!("{m:.1}"), "[[ 0.0,  1.0, 2.0],\n [10.0, 11.0, 7.5]]");
//! ```

mod arena;
mod array;
mod format;
mod view;

pub use arena::Arena;
pub use array::{Block, Matrix, Scalar, Tensor, Vector};
pub use view::{AsView, TensorView, TensorViewMut};
