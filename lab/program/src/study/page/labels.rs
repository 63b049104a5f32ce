//! Places labels so that they do not overlap.

/// Returns the heights of labels with these wanted heights. They are at least `gap` apart, between
/// `low` and `high`, in the wanted order, and each as near to its wanted height as the others allow. If
/// there is not enough room for all labels, the gap shrinks.
pub(crate) fn spread(wanted: &[f64], gap: f64, low: f64, high: f64) -> Vec<f64> {
    let gap = gap.min(room(wanted.len(), low, high));
    let mut order: Vec<usize> = (0..wanted.len()).collect();
    order.sort_by(|&a, &b| wanted[a].total_cmp(&wanted[b]));
    let mut places = vec![0.0; wanted.len()];
    let mut at = order.iter();
    for block in blocks(order.iter().map(|&i| wanted[i]), gap, low, high) {
        let mut place = block.start;
        for &label in at.by_ref().take(block.labels) {
            places[label] = place;
            place += gap;
        }
    }
    places
}

/// The indices of `candidates` (centre and width, the most important first) that do not touch an
/// earlier one.
pub(crate) fn fitting(candidates: &[(f64, f64)], gap: f64) -> Vec<usize> {
    let mut kept: Vec<usize> = Vec::new();
    for (at, (centre, width)) in candidates.iter().enumerate() {
        let clear = kept.iter().all(|&other| {
            let (other_centre, other_width) = candidates[other];
            (centre - other_centre).abs() >= f64::midpoint(*width, other_width) + gap
        });
        if clear {
            kept.push(at);
        }
    }
    kept
}

/// Closely spaced points along a line.
pub(crate) fn along(corners: &[(f64, f64)]) -> Vec<(f64, f64)> {
    let between = |two: &[(f64, f64)]| {
        let ((x, y), (next_x, next_y)) = (two[0], two[1]);
        (0..=20_u32).map(move |step| {
            let share = f64::from(step) / 20.0;
            ((next_x - x).mul_add(share, x), (next_y - y).mul_add(share, y))
        })
    };
    corners.windows(2).flat_map(between).collect()
}

/// Minimum distance between a text and a line, in pixels.
const CLEAR: f64 = 7.0;

/// The place with the largest distance to all obstacles. `places` are positions of the left end of a
/// text of width `width`. `None` if a line would cross the text at every place.
pub(crate) fn clearest(
    places: impl Iterator<Item = (f64, f64)>,
    width: f64,
    obstacles: &[(f64, f64)],
) -> Option<(f64, f64)> {
    let distance = |(x, y): (f64, f64)| {
        let to = |(other_x, other_y): &(f64, f64)| {
            let aside = (x - other_x).max(other_x - x - width).max(0.0);
            aside.hypot(y - other_y)
        };
        // Larger distances make no difference.
        obstacles.iter().map(to).fold(24.0, f64::min)
    };
    let mut best: Option<(f64, (f64, f64))> = None;
    for place in places {
        let clear = distance(place);
        if best.is_none_or(|(known, _)| clear > known) {
            best = Some((clear, place));
        }
    }
    best.filter(|(clear, _)| *clear >= CLEAR).map(|(_, place)| place)
}

/// Labels that touch, and therefore move together.
struct Block {
    labels: usize,
    start: f64,
    /// Sum, over the labels, of the start that each label alone would want for the block.
    wanted: f64,
}

fn blocks(wanted: impl Iterator<Item = f64>, gap: f64, low: f64, high: f64) -> Vec<Block> {
    let mut blocks: Vec<Block> = Vec::new();
    for height in wanted {
        let mut last = settle(Block { labels: 1, start: 0.0, wanted: height }, gap, low, high);
        while let Some(before) =
            blocks.pop_if(|before| before.start + length(before.labels) * gap > last.start)
        {
            last = settle(join(&before, &last, gap), gap, low, high);
        }
        blocks.push(last);
    }
    blocks
}

fn join(before: &Block, after: &Block, gap: f64) -> Block {
    let shift = length(before.labels) * length(after.labels) * gap;
    let labels = before.labels + after.labels;
    Block { labels, start: 0.0, wanted: before.wanted + after.wanted - shift }
}

fn settle(block: Block, gap: f64, low: f64, high: f64) -> Block {
    let last = (high - (length(block.labels) - 1.0) * gap).max(low);
    let start = (block.wanted / length(block.labels)).clamp(low, last);
    Block { start, ..block }
}

fn room(labels: usize, low: f64, high: f64) -> f64 {
    if labels < 2 { f64::INFINITY } else { (high - low) / (length(labels) - 1.0) }
}

#[expect(clippy::cast_precision_loss, reason = "a plot has a handful of labels")]
fn length(labels: usize) -> f64 {
    labels as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    fn assert_apart(wanted: &[f64], gap: f64, low: f64, high: f64) {
        let mut places = spread(wanted, gap, low, high);
        assert!(
            places.iter().all(|place| (low - 1e-6..=high + 1e-6).contains(place)),
            "{places:?}"
        );
        places.sort_by(f64::total_cmp);
        let apart = places.windows(2).all(|two| two[1] - two[0] >= gap - 1e-6);
        assert!(apart, "{wanted:?} went to {places:?}");
    }

    #[test]
    fn labels_never_cover_each_other() {
        assert_apart(&[100.0; 14], 16.0, 20.0, 420.0);
        assert_apart(&[20.0, 21.0, 22.0, 23.0, 200.0, 210.0, 419.0, 420.0], 16.0, 20.0, 420.0);
        let crowded: Vec<f64> = (0..25_u32).map(|i| f64::from((i * 7919) % 400) + 20.0).collect();
        assert_apart(&crowded, 16.0, 20.0, 420.0);
        assert_apart(&[300.0, 10.0, 305.0, 302.0], 16.0, 20.0, 420.0);
    }

    #[test]
    fn labels_with_room_stay_where_they_want_to_be() {
        assert_eq!(spread(&[300.0, 50.0, 100.0], 16.0, 20.0, 420.0), [300.0, 50.0, 100.0]);
    }

    #[test]
    fn too_many_labels_share_the_room_there_is() {
        assert_apart(&[100.0; 41], 10.0, 20.0, 420.0);
        assert_eq!(spread(&[], 10.0, 0.0, 1.0), Vec::<f64>::new());
        assert_eq!(spread(&[5.0, 5.0, 5.0], 10.0, 0.0, 10.0), [0.0, 5.0, 10.0]);
    }

    #[test]
    fn a_text_goes_where_no_line_passes() {
        let line = along(&[(0.0, 0.0), (50.0, 0.0)]);
        assert_eq!(clearest([(0.0, 2.0), (80.0, 2.0)].into_iter(), 10.0, &line), Some((80.0, 2.0)));
        assert_eq!(clearest([(0.0, 2.0)].into_iter(), 10.0, &line), None);
        assert_eq!(clearest([(0.0, 2.0)].into_iter(), 10.0, &[]), Some((0.0, 2.0)));
    }

    #[test]
    fn ticks_that_would_touch_are_left_out() {
        assert_eq!(
            fitting(&[(0.0, 10.0), (100.0, 10.0), (5.0, 10.0), (50.0, 10.0)], 2.0),
            [0, 1, 3]
        );
    }
}
