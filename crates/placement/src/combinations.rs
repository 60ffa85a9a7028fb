//! Combinations in lexicographic order: the kubelet enumerates them, and the first best one is its
//! answer.

/// Advances ascending indices below `len` to the next combination in lexicographic order. `false`
/// if they are the last one.
pub(super) fn next_combination(indices: &mut [usize], len: usize) -> bool {
    let size = indices.len();
    let movable = |&at: &usize| indices[at] + size < len + at;
    let Some(at) = (0..size).rev().find(movable) else {
        return false;
    };
    let next = indices[at] + 1;
    for (index, next) in indices.iter_mut().skip(at).zip(next..) {
        *index = next;
    }
    true
}

#[cfg(test)]
mod tests {
    use super::next_combination;

    #[test]
    fn combinations_of_two_of_four_come_in_lexicographic_order() {
        let mut indices = vec![0, 1];
        let mut all = vec![indices.clone()];
        while next_combination(&mut indices, 4) {
            all.push(indices.clone());
        }
        assert_eq!(all, [[0, 1], [0, 2], [0, 3], [1, 2], [1, 3], [2, 3]]);
        assert!(!next_combination(&mut [], 4));
    }
}
