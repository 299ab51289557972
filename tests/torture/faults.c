/* Kills the process at a file operation, or lets the disk be full from there on. Loaded with LD_PRELOAD.
 *
 * Operations count if they change something below the armed directory: creating, writing, renaming, removing, syncing. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <unistd.h>

enum { COUNT, KILL, FULL };
static char directory[PATH_MAX];
static int mode;
static long at, operations, writes;

/* Call after fork(): from now on, operations below the directory are counted. `at` counts all operations for KILL, and those that need
 * space for FULL, from 1. */
void torture_arm(const char* below, int new_mode, long new_at) {
    snprintf(directory, sizeof directory, "%s", below);
    mode = new_mode;
    at = new_at;
    operations = writes = 0;
}
long torture_operations(void) { return operations; }
long torture_writes(void) { return writes; }

/* Counts an operation; returns whether it fails because the disk is full. */
static int fault(int needs_space) {
    const long number = __atomic_add_fetch(&operations, 1, __ATOMIC_SEQ_CST);
    const long write_number = needs_space ? __atomic_add_fetch(&writes, 1, __ATOMIC_SEQ_CST) : 0;
    if (mode == KILL && number == at) kill(getpid(), SIGKILL);
    if (mode != FULL || !needs_space || write_number < at) return 0;
    errno = ENOSPC;
    return 1;
}

static int below(const char* path) {
    const size_t size = strlen(directory);
    return size && strncmp(path, directory, size) == 0 && (path[size] == '/' || !path[size]);
}

static int path_fault(int folder, const char* path, int needs_space) {
    if (!directory[0]) return 0;
    if (path[0] == '/') return below(path) && fault(needs_space);
    char link[64], full[PATH_MAX];
    snprintf(link, sizeof link, folder == AT_FDCWD ? "/proc/self/cwd" : "/proc/self/fd/%d", folder);
    const ssize_t size = readlink(link, full, sizeof full - 1);
    if (size < 0) return 0;
    full[size] = '\0';
    return below(full) && fault(needs_space);
}

static int file_fault(int file, int needs_space) {
    char link[64], path[PATH_MAX];
    if (!directory[0]) return 0;
    snprintf(link, sizeof link, "/proc/self/fd/%d", file);
    const ssize_t size = readlink(link, path, sizeof path - 1);
    if (size < 0) return 0;
    path[size] = '\0';
    return below(path) && fault(needs_space);
}

#define REAL(name) ((__typeof__(&name))dlsym(RTLD_NEXT, #name))
#define CREATES(flags) ((flags) & (O_CREAT | O_TRUNC))
#define OPEN(name, folder, declared, passed)                                   \
    int name declared {                                                        \
        va_list rest;                                                          \
        va_start(rest, flags);                                                 \
        const mode_t permissions = flags & O_CREAT ? va_arg(rest, mode_t) : 0; \
        va_end(rest);                                                          \
        if (CREATES(flags) && path_fault(folder, path, 1)) return -1;          \
        return REAL(name) passed;                                              \
    }
OPEN(open, AT_FDCWD, (const char* path, int flags, ...), (path, flags, permissions))
OPEN(open64, AT_FDCWD, (const char* path, int flags, ...), (path, flags, permissions))
OPEN(openat, folder, (int folder, const char* path, int flags, ...), (folder, path, flags, permissions))
OPEN(openat64, folder, (int folder, const char* path, int flags, ...), (folder, path, flags, permissions))

#define FILE_CALL(type, name, needs_space, declared, passed) \
    type name declared { return file_fault(file, needs_space) ? -1 : REAL(name) passed; }
FILE_CALL(ssize_t, write, 1, (int file, const void* from, size_t size), (file, from, size))
FILE_CALL(ssize_t, pwrite, 1, (int file, const void* from, size_t size, off_t to), (file, from, size, to))
FILE_CALL(ssize_t, pwrite64, 1, (int file, const void* from, size_t size, off64_t to), (file, from, size, to))
FILE_CALL(ssize_t, writev, 1, (int file, const struct iovec* from, int count), (file, from, count))
FILE_CALL(int, ftruncate, 0, (int file, off_t size), (file, size))
FILE_CALL(int, ftruncate64, 0, (int file, off64_t size), (file, size))
FILE_CALL(int, fsync, 0, (int file), (file))
FILE_CALL(int, fdatasync, 0, (int file), (file))

/* These return the error. */
int posix_fallocate(int file, off_t from, off_t size) { return file_fault(file, 1) ? ENOSPC : REAL(posix_fallocate)(file, from, size); }
int posix_fallocate64(int file, off64_t from, off64_t size) {
    return file_fault(file, 1) ? ENOSPC : REAL(posix_fallocate64)(file, from, size);
}

#define PATH_CALL(name, folder, path, needs_space, declared, passed) \
    int name declared { return path_fault(folder, path, needs_space) ? -1 : REAL(name) passed; }
PATH_CALL(mkdir, AT_FDCWD, path, 1, (const char* path, mode_t permissions), (path, permissions))
PATH_CALL(mkdirat, folder, path, 1, (int folder, const char* path, mode_t permissions), (folder, path, permissions))
PATH_CALL(rename, AT_FDCWD, to, 0, (const char* from, const char* to), (from, to))
PATH_CALL(renameat, to_folder, to, 0, (int folder, const char* from, int to_folder, const char* to), (folder, from, to_folder, to))
PATH_CALL(renameat2, to_folder, to, 0, (int folder, const char* from, int to_folder, const char* to, unsigned flags),
          (folder, from, to_folder, to, flags))
PATH_CALL(unlink, AT_FDCWD, path, 0, (const char* path), (path))
PATH_CALL(unlinkat, folder, path, 0, (int folder, const char* path, int flags), (folder, path, flags))
PATH_CALL(rmdir, AT_FDCWD, path, 0, (const char* path), (path))
