//! Several relocatable objects as one run of bytes, fit for a cache: for each its length (`u64`, little-endian), then
//! its bytes.

use crate::error::CodegenError;

/// Joins objects.
pub fn join(objects: &[Vec<u8>]) -> Vec<u8> {
    let mut joined = vec![];
    for object in objects {
        joined.extend_from_slice(&(object.len() as u64).to_le_bytes());
        joined.extend_from_slice(object);
    }
    joined
}

/// The inverse of [`join`].
///
/// # Errors
/// [`CodegenError::Joined`].
pub fn split(mut joined: &[u8]) -> Result<Vec<&[u8]>, CodegenError> {
    let mut objects = vec![];
    while !joined.is_empty() {
        let (length, rest) = joined.split_first_chunk().ok_or(CodegenError::Joined)?;
        let length = usize::try_from(u64::from_le_bytes(*length)).map_err(|_| CodegenError::Joined)?;
        let (object, rest) = rest.split_at_checked(length).ok_or(CodegenError::Joined)?;
        objects.push(object);
        joined = rest;
    }
    Ok(objects)
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests")]
mod tests {
    use super::*;

    #[test]
    fn what_is_joined_comes_apart() {
        for objects in [vec![], vec![vec![1, 2]], vec![vec![], vec![3; 300], vec![4]]] {
            let joined = join(&objects);
            assert_eq!(split(&joined).unwrap(), objects);
            if !joined.is_empty() {
                assert!(split(&joined[..joined.len() - 1]).is_err());
            }
        }
    }
}
