/*
 * OpenMPI's Allreduce over f32, for `deno task bench`.
 *
 *     mpirun -np R mpi_allreduce BYTES WARM ROUNDS
 *
 * Rank 0 prints one line `result {"ranks": [{"ms": [...], "cpu_s": ..., "rss_mb": ...}, ...]}`.
 * Only the Allreduce is timed: the fresh values of every round, and a barrier, come before it.
 */

#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>

static double cpu_seconds(void)
{
    struct rusage usage;
    getrusage(RUSAGE_SELF, &usage);
    return usage.ru_utime.tv_sec + usage.ru_stime.tv_sec
        + (usage.ru_utime.tv_usec + usage.ru_stime.tv_usec) / 1e6;
}

static double peak_mb(void)
{
    struct rusage usage;
    getrusage(RUSAGE_SELF, &usage);
    return usage.ru_maxrss * 1024.0 / 1e6;
}

static void *allocate(size_t bytes)
{
    void *memory = malloc(bytes);
    if (memory == NULL) {
        fprintf(stderr, "mpi_allreduce: no memory for %zu bytes\n", bytes);
        MPI_Abort(MPI_COMM_WORLD, 1);
    }
    return memory;
}

/* `times` may be NULL. */
static void rounds(int count, float *work, const float *fresh, int elements, double *times)
{
    for (int i = 0; i < count; i++) {
        memcpy(work, fresh, elements * sizeof(float));
        MPI_Barrier(MPI_COMM_WORLD);
        double start = MPI_Wtime();
        MPI_Allreduce(MPI_IN_PLACE, work, elements, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
        if (times != NULL)
            times[i] = (MPI_Wtime() - start) * 1e3;
    }
}

int main(int argc, char **argv)
{
    MPI_Init(&argc, &argv);
    int rank, size;
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    if (argc != 4) {
        fprintf(stderr, "usage: mpi_allreduce BYTES WARM ROUNDS\n");
        MPI_Abort(MPI_COMM_WORLD, 2);
    }
    int elements = atoi(argv[1]) / 4, warm = atoi(argv[2]), count = atoi(argv[3]);

    float *fresh = allocate(elements * sizeof(float));
    float *work = allocate(elements * sizeof(float));
    for (int i = 0; i < elements; i++)
        fresh[i] = (float)rand() / (float)RAND_MAX;

    /* One record per rank: the times, then the CPU seconds and the peak memory. */
    double *record = allocate((count + 2) * sizeof(double));
    rounds(warm + 1, work, fresh, elements, NULL);
    double before = cpu_seconds();
    rounds(count, work, fresh, elements, record);
    record[count] = (cpu_seconds() - before) / count;
    record[count + 1] = peak_mb();

    double *all = rank == 0 ? allocate((size_t)size * (count + 2) * sizeof(double)) : NULL;
    MPI_Gather(record, count + 2, MPI_DOUBLE, all, count + 2, MPI_DOUBLE, 0, MPI_COMM_WORLD);
    if (rank == 0) {
        printf("result {\"ranks\": [");
        for (int r = 0; r < size; r++) {
            const double *of = all + (size_t)r * (count + 2);
            printf("%s{\"ms\": [", r == 0 ? "" : ", ");
            for (int i = 0; i < count; i++)
                printf("%s%.6f", i == 0 ? "" : ", ", of[i]);
            printf("], \"cpu_s\": %.6f, \"rss_mb\": %.3f}", of[count], of[count + 1]);
        }
        printf("]}\n");
        fflush(stdout);
    }
    MPI_Finalize();
    return 0;
}
