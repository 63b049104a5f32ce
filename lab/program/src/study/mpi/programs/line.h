// The raw line: the time of a bare cache line from one core to another, which no message can beat. Two processes call
// `time_line` at the same time, as sides 0 and 1, with the same memory mapped.

#pragma once

#include <stdint.h>
#include <stdlib.h>

#include "conductor.h"

enum {
    // Of a walk, in each direction: a single pair would mostly show where it lies.
    LINES = 1024,
    // Round trips whose mean counts as one time, because some clocks advance in steps.
    TOGETHER = 16,
    TIMES = LINES / TOGETHER,
};

// Two of a cache's lines, which are fetched together.
struct line {
    uint64_t number;
} __attribute__((aligned(128)));

struct lines {
    struct line ways[2][LINES];
};

// Waits until the other side has written `number`. It may have to run where this side does.
static void await_line(const struct line *line, uint64_t number) {
    for (uint32_t looks = 1; __atomic_load_n(&line->number, __ATOMIC_ACQUIRE) != number; looks++)
        if (looks % 65536 == 0) sched_yield();
}

static void walk(struct lines *lines, int side, uint64_t first, uint64_t end) {
    for (uint64_t number = first; number < end; number++) {
        struct line *there = &lines->ways[side][number % LINES], *back = &lines->ways[1 - side][number % LINES];
        if (side) await_line(back, number);
        __atomic_store_n(&there->number, number, __ATOMIC_RELEASE);
        if (!side) await_line(back, number);
    }
}

static int by_size(const void *one, const void *other) {
    double a = *(const double *)one, b = *(const double *)other;
    return (a > b) - (a < b);
}

// One way, in nanoseconds: the median over a walk, after one that is not counted.
static double time_line(struct lines *lines, int side) {
    static uint64_t gone = 1;
    double times[TIMES];
    walk(lines, side, gone, gone + LINES);
    gone += LINES;
    for (int at = 0; at < TIMES; at++, gone += TOGETHER) {
        double began = now_ns();
        walk(lines, side, gone, gone + TOGETHER);
        times[at] = (now_ns() - began) / TOGETHER / 2;
    }
    qsort(times, TIMES, sizeof times[0], by_size);
    return times[TIMES / 2];
}
