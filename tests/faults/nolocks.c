/* Makes the folder named by NOLOCKS_UNDER a filesystem without locks and links, for programs that load this first.
 *
 * As Lustre without -o flock, FAT, or a share over 9p or SMB answer: locks with ENOLCK (flock(2), fcntl(2)), hard and
 * symbolic links with EPERM (link(2), symlink(2)). Everywhere else, and for all else, the system's own functions work.
 * What was refused is counted, a byte each, in the file named by NOLOCKS_COUNT.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <unistd.h>

static int inside(const char *path)
{
    const char *root = getenv("NOLOCKS_UNDER");
    size_t length = root ? strlen(root) : 0;
    return length && !strncmp(path, root, length) && (path[length] == '/' || !path[length]);
}

static int fd_inside(int fd)
{
    char name[64], path[PATH_MAX];
    ssize_t length;
    snprintf(name, sizeof name, "/proc/self/fd/%d", fd);
    length = readlink(name, path, sizeof path - 1);
    if (length < 0)
        return 0;
    path[length] = 0;
    return inside(path);
}

/* Whether a new name lies inside: its folder exists, itself it doesn't. */
static int name_inside(int folder, const char *name)
{
    char path[PATH_MAX], *slash;
    int fd, found;
    snprintf(path, sizeof path, "%s", name);
    slash = strrchr(path, '/');
    if (slash)
        slash[1] = 0;
    else
        strcpy(path, ".");
    if ((fd = openat(folder, path, O_PATH | O_DIRECTORY | O_CLOEXEC)) < 0)
        return 0;
    found = fd_inside(fd);
    close(fd);
    return found;
}

static int refuse(int error, char what)
{
    const char *path = getenv("NOLOCKS_COUNT");
    int fd = path ? open(path, O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0666) : -1;
    if (fd >= 0) {
        if (write(fd, &what, 1) < 0)
            perror("nolocks");
        close(fd);
    }
    errno = error;
    return -1;
}

static int is_lock(int command)
{
    return command == F_SETLK || command == F_SETLKW || command == F_GETLK || command == F_OFD_SETLK
        || command == F_OFD_SETLKW || command == F_OFD_GETLK;
}

#define SYSTEMS(name) dlsym(RTLD_NEXT, #name)

#define CONTROL(name)                                                                    \
    int name(int fd, int command, ...)                                                   \
    {                                                                                    \
        static int (*systems)(int, int, ...);                                            \
        va_list rest;                                                                    \
        void *argument;                                                                  \
        va_start(rest, command);                                                         \
        argument = va_arg(rest, void *);                                                 \
        va_end(rest);                                                                    \
        if (!systems)                                                                    \
            *(void **)&systems = SYSTEMS(name);                                          \
        return is_lock(command) && fd_inside(fd) ? refuse(ENOLCK, 'l') : systems(fd, command, argument); \
    }

CONTROL(fcntl)
CONTROL(fcntl64)

int flock(int fd, int operation)
{
    int (*systems)(int, int);
    *(void **)&systems = SYSTEMS(flock);
    return fd_inside(fd) ? refuse(ENOLCK, 'l') : systems(fd, operation);
}

int lockf(int fd, int command, off_t length)
{
    int (*systems)(int, int, off_t);
    *(void **)&systems = SYSTEMS(lockf);
    return fd_inside(fd) ? refuse(ENOLCK, 'l') : systems(fd, command, length);
}

int linkat(int old_folder, const char *old, int new_folder, const char *new, int flags)
{
    int (*systems)(int, const char *, int, const char *, int);
    *(void **)&systems = SYSTEMS(linkat);
    return name_inside(new_folder, new) ? refuse(EPERM, 'h') : systems(old_folder, old, new_folder, new, flags);
}

int link(const char *old, const char *new) { return linkat(AT_FDCWD, old, AT_FDCWD, new, 0); }

int symlinkat(const char *target, int folder, const char *name)
{
    int (*systems)(const char *, int, const char *);
    *(void **)&systems = SYSTEMS(symlinkat);
    return name_inside(folder, name) ? refuse(EPERM, 's') : systems(target, folder, name);
}

int symlink(const char *target, const char *name) { return symlinkat(target, AT_FDCWD, name); }
