/* Messages of 0 bytes to 1 MiB to and fro between ranks 0 and 1; every byte is checked on either side. */

#include "common.h"

enum { LARGEST = 1 << 20 };

static unsigned char data[LARGEST + 8], expected[LARGEST + 8];

static void fill(unsigned char *bytes, int length, uint32_t seed) {
    uint32_t state = seed * 2654435761u + 1;
    for (int i = 0; i < length; i++) {
        state = state * 1664525u + 1013904223u;
        bytes[i] = state >> 24;
    }
}

static void receive(int from, int length, uint32_t seed) {
    MPI_Status status;
    int came;
    memset(data, 0xee, length + 8);
    MPI_Recv(data, length, MPI_BYTE, from, length % 1000, MPI_COMM_WORLD, &status);
    MPI_Get_count(&status, MPI_BYTE, &came);
    CHECK(came == length, "%d bytes of %d", came, length);
    fill(expected, length, seed);
    memset(expected + length, 0xee, 8);
    for (int i = 0; memcmp(data, expected, length + 8) != 0 && i < length + 8; i++)
        CHECK(data[i] == expected[i], "byte %d of %d: %d and not %d", i, length, data[i], expected[i]);
}

static void exchange(int length, int rounds) {
    for (int round = 0; round < rounds; round++) {
        uint32_t seed = length + 31 * round;
        if (rank == 0) {
            fill(data, length, seed);
            MPI_Send(data, length, MPI_BYTE, 1, length % 1000, MPI_COMM_WORLD);
            receive(1, length, ~seed);
        } else if (rank == 1) {
            receive(0, length, seed);
            fill(data, length, ~seed);
            MPI_Send(data, length, MPI_BYTE, 0, length % 1000, MPI_COMM_WORLD);
        }
    }
}

int main(int count, char **words) {
    begin(&count, &words);
    for (int length = 0; length <= 256; length++)
        exchange(length, 4);
    for (int power = 9; power <= 20; power++)
        for (int more = -1; more <= (power < 20); more++)
            exchange((1 << power) + more, power < 17 ? 4 : 2);
    end();
}
