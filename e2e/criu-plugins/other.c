/* A CRIU plugin of somebody else's, to stand beside ours in a test.
 *
 * It keeps one character device (OTHER_PLUGIN_DEVICE), for which a restored process gets /dev/null, notes in the images'
 * inventory that they need it, and writes every call that it gets, one a line, to the file OTHER_PLUGIN_CALLS. With
 * OTHER_PLUGIN_ANSWERS=all it says that all is done for every process, as CRIU's own plugin for CUDA does up to 4.2.1 for
 * those without CUDA; else it leaves processes to other plugins.
 *
 * The declarations are our own, after CRIU's documentation of its plugins (interface 0.2.0).
 *
 * Build: cc -shared -fPIC -O2 other.c -o other_plugin.so
 */
#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define NAME "other"
#define MAX_HOOKS 12

enum hook {
    DUMP_UNIX_SK = 0,
    RESTORE_UNIX_SK = 1,
    DUMP_EXT_FILE = 2,
    RESTORE_EXT_FILE = 3,
    RESUME_DEVICES_LATE = 9,
    PAUSE_DEVICES = 10,
    CHECKPOINT_DEVICES = 11,
};

enum stage { STAGE_DUMP = 0, STAGE_RESTORE = 2 };

struct descriptor {
    const char *name;
    int (*init)(int stage);
    void (*exit)(int stage, int result);
    unsigned int version;
    unsigned int max_hooks;
    void *hooks[MAX_HOOKS];
};

/* CRIU's own. */
int add_inventory_plugin(const char *name);
bool check_and_remove_inventory_plugin(const char *name, size_t length);

static void note(const char *call, int argument)
{
    const char *path = getenv("OTHER_PLUGIN_CALLS");
    char line[80];
    const int length = snprintf(line, sizeof line, "%s %d\n", call, argument);
    const int fd = open(path ? path : "/dev/null", O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0600);
    if (fd >= 0 && write(fd, line, (size_t)length) != length)
        fprintf(stderr, NAME ": %s cannot be written\n", path);
    if (fd >= 0)
        close(fd);
}

static int answer(const char *call, int pid)
{
    const char *answers = getenv("OTHER_PLUGIN_ANSWERS");
    note(call, pid);
    return answers && !strcmp(answers, "all") ? 0 : -ENOTSUP;
}

static int init(int stage)
{
    note("init", stage);
    if (stage == STAGE_DUMP)
        return add_inventory_plugin(NAME);
    if (stage == STAGE_RESTORE)
        note("is in the inventory", check_and_remove_inventory_plugin(NAME, strlen(NAME)));
    return 0;
}

static void finish(int stage, int result)
{
    (void)stage;
    note("exit", result);
}

static int dump_unix_sk(int fd, int inode)
{
    (void)fd, (void)inode;
    note("dump_unix_sk", 0);
    return -ENOTSUP;
}

static int restore_unix_sk(int inode)
{
    (void)inode;
    note("restore_unix_sk", 0);
    return -ENOTSUP;
}

static int dump_ext_file(int fd, int id)
{
    const char *device = getenv("OTHER_PLUGIN_DEVICE");
    struct stat given, own;
    (void)id;
    note("dump_ext_file", 0);
    if (!device || stat(device, &own) || fstat(fd, &given) || given.st_rdev != own.st_rdev)
        return -ENOTSUP;
    return 0;
}

static int restore_ext_file(int id, bool *retry_needed)
{
    (void)id;
    note("restore_ext_file", 0);
    *retry_needed = false;
    return open("/dev/null", O_RDWR);
}

static int pause_devices(int pid)
{
    return answer("pause_devices", pid);
}

static int checkpoint_devices(int pid)
{
    return answer("checkpoint_devices", pid);
}

static int resume_devices_late(int pid)
{
    return answer("resume_devices_late", pid);
}

struct descriptor CR_PLUGIN_DESC = {
    .name = NAME,
    .init = init,
    .exit = finish,
    .version = 0x200,
    .max_hooks = MAX_HOOKS,
    .hooks =
        {
            [DUMP_UNIX_SK] = (void *)dump_unix_sk,
            [RESTORE_UNIX_SK] = (void *)restore_unix_sk,
            [DUMP_EXT_FILE] = (void *)dump_ext_file,
            [RESTORE_EXT_FILE] = (void *)restore_ext_file,
            [RESUME_DEVICES_LATE] = (void *)resume_devices_late,
            [PAUSE_DEVICES] = (void *)pause_devices,
            [CHECKPOINT_DEVICES] = (void *)checkpoint_devices,
        },
};
