//! "Did you mean": the nearest of the names that would have been possible.

/// Longer names are not compared: the cost grows with the square of the length.
const NAME_BYTES_MAX: usize = 64;

/// More candidates are not compared, so that a file of a megabyte with errors only is still checked at once.
const CANDIDATES_MAX: usize = 2000;

/// The candidate with the fewest edits from `name`, if a third of its letters at most differ.
pub(crate) fn similar<'a>(
    name: &str,
    candidates: impl IntoIterator<Item = &'a str>,
) -> Option<&'a str> {
    if name.is_empty() || name.len() > NAME_BYTES_MAX {
        return None;
    }
    let limit = (name.chars().count() / 3).max(1);
    candidates
        .into_iter()
        .take(CANDIDATES_MAX)
        .filter(|candidate| candidate.len() <= NAME_BYTES_MAX && *candidate != name)
        .map(|candidate| (distance(name, candidate), candidate))
        .filter(|(edits, _)| *edits <= limit)
        .min()
        .map(|(_, candidate)| candidate)
}

/// The number of letters to insert, remove, replace or exchange with a neighbour. A letter in the wrong case counts
/// nothing, so that `STRING` finds `String`.
fn distance(left: &str, right: &str) -> usize {
    let left = left.to_lowercase().chars().collect::<Vec<_>>();
    let right = right.to_lowercase().chars().collect::<Vec<_>>();
    let mut before = vec![0; right.len() + 1];
    let mut above = (0..=right.len()).collect::<Vec<_>>();
    for (row, l) in left.iter().enumerate() {
        let mut current = vec![row + 1; right.len() + 1];
        for (column, r) in right.iter().enumerate() {
            let replaced = above[column] + usize::from(l != r);
            let mut best = replaced.min(above[column + 1] + 1).min(current[column] + 1);
            let exchanged = row > 0 && column > 0 && *l == right[column - 1] && left[row - 1] == *r;
            if exchanged {
                best = best.min(before[column - 1] + 1);
            }
            current[column + 1] = best;
        }
        before = std::mem::replace(&mut above, current);
    }
    above[right.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_nearest_name_is_found() {
        let names = ["uint8", "uint16", "uint32", "String", "errval"];
        assert_eq!(similar("unit32", names), Some("uint32"));
        assert_eq!(similar("STRING", names), Some("String"));
        assert_eq!(similar("erval", names), Some("errval"));
        assert_eq!(similar("vci", names), None);
        assert_eq!(similar("", names), None);
        assert_eq!(distance("ab", "ba"), 1);
    }
}
