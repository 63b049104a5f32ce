// What the measuring programs share: the clock, the data of messages, and the socket over which the study tells each
// process what to do next, so that the blocks of several systems take turns. A process that waits for its turn sleeps.

#pragma once

#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <sched.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <time.h>
#include <fcntl.h>
#include <unistd.h>

enum {
    LONGEST = 4 << 20,
    // A block that takes longer is stuck.
    PATIENCE_S = 30,
};

// What a process is told to do.
struct order {
    // Such as "latency".
    char measure[32];
    size_t bytes;
    // Operations in the block, and before it.
    long count, warm;
    // Whether each side has a processor of its own, so that a line between them can be timed.
    int has_line;
};

static FILE *conductor;

static double now_ns(void) {
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return time.tv_sec * 1e9 + time.tv_nsec;
}

// Tells the study; where it does not listen, the user.
__attribute__((format(printf, 1, 2))) static void say(const char *format, ...) {
    FILE *to = conductor ? conductor : stderr;
    va_list arguments;
    va_start(arguments, format);
    vfprintf(to, format, arguments);
    va_end(arguments);
    fputc('\n', to);
    fflush(to);
}

// Tells the study why nothing more can be measured, and ends the process.
#define FAIL(...) (say("failed " __VA_ARGS__), exit(1))

static void conduct(const char *path, int rank) {
    struct sockaddr_un name = {.sun_family = AF_UNIX};
    if (strlen(path) >= sizeof name.sun_path) exit(2);
    strcpy(name.sun_path, path);
    int file = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (file < 0 || connect(file, (struct sockaddr *)&name, sizeof name)) {
        perror("connect to the study");
        exit(2);
    }
    conductor = fdopen(file, "r+");
    if (!conductor) exit(2);
    say("rank %d", rank);
}

// The next line from the study. Its end ends this process.
static void hear(char *line, int length) {
    alarm(0);
    if (!fgets(line, length, conductor)) _exit(3);
    // Read and write need a call between them.
    fseek(conductor, 0, SEEK_CUR);
    alarm(PATIENCE_S);
}

// Keeps to the processor that the study names, if it names one, after the library has seen how many there are.
static void take_place(void) {
    char line[64];
    int cpu;
    hear(line, sizeof line);
    if (sscanf(line, "cpu %d", &cpu) != 1) return;
    cpu_set_t set;
    CPU_ZERO(&set);
    CPU_SET(cpu, &set);
    if (sched_setaffinity(0, sizeof set, &set)) FAIL("processor %d is not to be had", cpu);
}

// The next order; 0 at the end.
static int next_order(struct order *order) {
    char line[128];
    hear(line, sizeof line);
    return sscanf(line, "%31s %zu %ld %ld %d", order->measure, &order->bytes, &order->count, &order->warm,
                  &order->has_line) == 5;
}

// Memory that both sides map.
static void *map(const char *path, size_t bytes) {
    int file = open(path, O_RDWR | O_CLOEXEC);
    void *mapped = file < 0 || ftruncate(file, bytes)
                       ? MAP_FAILED
                       : mmap(0, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    if (mapped == MAP_FAILED) FAIL("the memory of the lines is not to be had");
    close(file);
    return mapped;
}

static void *buffer(void) {
    void *memory = aligned_alloc(4096, LONGEST);
    if (!memory) FAIL("no memory for a buffer");
    memset(memory, 1, LONGEST);
    return memory;
}

// Data that depends on its place and on `seed`.
static inline unsigned char byte_of(size_t at, unsigned seed) { return at * 7 + (at >> 8) + seed; }

static void write_data(unsigned char *data, size_t bytes, unsigned seed) {
    for (size_t at = 0; at < bytes; at++) data[at] = byte_of(at, seed);
}

static void check_data(const unsigned char *data, size_t bytes, unsigned seed, const char *what) {
    for (size_t at = 0; at < bytes; at++) {
        if (data[at] == byte_of(at, seed)) continue;
        FAIL("%s of %zu B: byte %zu is %u, not %u", what, bytes, at, data[at], byte_of(at, seed));
    }
}

// A message that is written before it is sent and read after it is received consists of one word.
static void touch(unsigned char *data, size_t bytes, unsigned seed) { memset(data, seed, bytes); }

static void check_touched(const unsigned char *data, size_t bytes, unsigned seed) {
    uint64_t sum = 0, wanted, word;
    size_t at = 0;
    memset(&word, seed, sizeof word);
    for (; at + sizeof word <= bytes; at += sizeof word) {
        uint64_t read;
        memcpy(&read, data + at, sizeof read);
        sum += read;
    }
    wanted = word * (bytes / sizeof word);
    for (; at < bytes; at++) sum += data[at] - (uint64_t)(unsigned char)seed;
    if (sum != wanted) FAIL("a message of %zu B arrived damaged", bytes);
}

// Messages of a stream that are on their way together. The study knows these numbers, too.
static int window_of(size_t bytes) { return bytes <= 16 << 10 ? 64 : bytes <= 256 << 10 ? 16 : 4; }
