/* A stand-in for libnvidia-ml.so.1: every machine by one file of text, $GPUGRANT_HARDWARE/usr/share/stand-in-nvml.
 *
 *   init|CODE                                                  what nvmlInit answers; -1: it never does
 *   driver|VERSION
 *   card|MINOR|UUID|BUS|MIB|MIG|SERIAL|ACTION|ERROR|NAME        MIG 0, 1 or -1 (not supported); ERROR of every getter
 *   mig|GI|CI|UUID|NAME                                         of the card before it
 *
 * An empty SERIAL is not supported; ERROR -15 is a card that gives no handle. Layouts are those of NVML's header.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { OK = 0, INVALID = 2, NOT_SUPPORTED = 3, NOT_FOUND = 6, TOO_SMALL = 7 };

struct card {
    int minor, mig, action, error, first, instances;
    unsigned long long mib;
    char uuid[96], bus[32], serial[64], name[96];
};
struct instance {
    unsigned gi, ci;
    char uuid[96], name[96];
};
struct pci {
    char legacy[16];
    unsigned domain, bus, device, ids, subsystem;
    char id[32];
};
struct memory {
    unsigned long long total, free, used;
};
struct field {
    unsigned id, scope;
    long long timestamp, latency;
    unsigned type;
    int ret;
    union {
        double d;
        unsigned u;
        unsigned long long ull;
    } value;
};

static struct card cards[64];
static struct instance parts[512];
static int count, total, init_code;
static char driver[80] = "580.95.05";

static char *next(char **rest) {
    char *found = strsep(rest, "|");
    return found ? found : "";
}

static void copy(char *into, size_t size, const char *text) { snprintf(into, size, "%s", text); }

static void read_machine(void) {
    char path[4096], line[1024];
    snprintf(path, sizeof path, "%s/usr/share/stand-in-nvml", getenv("GPUGRANT_HARDWARE") ? getenv("GPUGRANT_HARDWARE") : "");
    FILE *file = fopen(path, "r");
    count = total = init_code = 0;
    while (file && fgets(line, sizeof line, file)) {
        line[strcspn(line, "\n")] = 0;
        char *rest = line, *kind = next(&rest);
        if (!strcmp(kind, "init")) init_code = atoi(next(&rest));
        if (!strcmp(kind, "driver")) copy(driver, sizeof driver, next(&rest));
        if (!strcmp(kind, "card") && count < 64) {
            struct card *c = &cards[count++];
            c->minor = atoi(next(&rest));
            copy(c->uuid, sizeof c->uuid, next(&rest));
            copy(c->bus, sizeof c->bus, next(&rest));
            c->mib = strtoull(next(&rest), 0, 10);
            c->mig = atoi(next(&rest));
            copy(c->serial, sizeof c->serial, next(&rest));
            c->action = atoi(next(&rest));
            c->error = atoi(next(&rest));
            copy(c->name, sizeof c->name, next(&rest));
            c->first = total;
            c->instances = 0;
        }
        if (!strcmp(kind, "mig") && count && total < 512) {
            struct instance *i = &parts[total++];
            i->gi = atoi(next(&rest));
            i->ci = atoi(next(&rest));
            copy(i->uuid, sizeof i->uuid, next(&rest));
            copy(i->name, sizeof i->name, next(&rest));
            cards[count - 1].instances++;
        }
    }
    if (file) fclose(file);
}

static struct instance *part(void *device) {
    struct instance *i = device;
    return i >= parts && i < parts + 512 ? i : 0;
}
static int text(const char *from, char *into, unsigned size) {
    if (strlen(from) + 1 > size) return TOO_SMALL;
    strcpy(into, from);
    return OK;
}
#define CARD(device)                     \
    struct card *c = device;             \
    if (part(device)) return INVALID;    \
    if (c->error > 0) return c->error;

int nvmlInitWithFlags(unsigned flags) {
    (void)flags;
    read_machine();
    while (init_code < 0) pause();
    return init_code;
}
int nvmlInit_v2(void) { return nvmlInitWithFlags(0); }
int nvmlShutdown(void) { return OK; }
const char *nvmlErrorString(int code) {
    (void)code;
    return "an error of the stand-in";
}
int nvmlSystemGetDriverVersion(char *into, unsigned size) { return text(driver, into, size); }
int nvmlDeviceGetCount_v2(unsigned *found) {
    *found = count;
    return OK;
}
int nvmlDeviceGetHandleByIndex_v2(unsigned index, void **device) {
    if (index >= (unsigned)count) return INVALID;
    if (cards[index].error < 0) return -cards[index].error;
    *device = &cards[index];
    return OK;
}
int nvmlDeviceGetUUID(void *device, char *into, unsigned size) {
    if (part(device)) return text(part(device)->uuid, into, size);
    CARD(device)
    return text(c->uuid, into, size);
}
int nvmlDeviceGetName(void *device, char *into, unsigned size) {
    if (part(device)) return text(part(device)->name, into, size);
    CARD(device)
    return text(c->name, into, size);
}
int nvmlDeviceGetMinorNumber(void *device, unsigned *minor) {
    CARD(device)
    *minor = c->minor;
    return OK;
}
int nvmlDeviceGetSerial(void *device, char *into, unsigned size) {
    CARD(device)
    return *c->serial ? text(c->serial, into, size) : NOT_SUPPORTED;
}
int nvmlDeviceGetPciInfo_v3(void *device, struct pci *pci) {
    CARD(device)
    memset(pci, 0, sizeof *pci);
    return text(c->bus, pci->id, sizeof pci->id);
}
int nvmlDeviceGetMemoryInfo(void *device, struct memory *memory) {
    CARD(device)
    memory->total = c->mib << 20;
    memory->free = memory->total;
    memory->used = 0;
    return OK;
}
int nvmlDeviceGetMigMode(void *device, unsigned *current, unsigned *pending) {
    CARD(device)
    if (c->mig < 0) return NOT_SUPPORTED;
    *current = *pending = c->mig;
    return OK;
}
int nvmlDeviceGetMaxMigDeviceCount(void *device, unsigned *most) {
    CARD(device)
    *most = 7;
    return OK;
}
int nvmlDeviceGetMigDeviceHandleByIndex(void *device, unsigned index, void **found) {
    CARD(device)
    if (index >= (unsigned)c->instances) return NOT_FOUND;
    *found = &parts[c->first + index];
    return OK;
}
int nvmlDeviceGetGpuInstanceId(void *device, unsigned *id) {
    if (!part(device)) return INVALID;
    *id = part(device)->gi;
    return OK;
}
int nvmlDeviceGetComputeInstanceId(void *device, unsigned *id) {
    if (!part(device)) return INVALID;
    *id = part(device)->ci;
    return OK;
}
int nvmlDeviceGetFieldValues(void *device, int number, struct field *fields) {
    CARD(device)
    for (int n = 0; n < number; n++) {
        fields[n].ret = fields[n].id == 230 ? OK : NOT_SUPPORTED;
        fields[n].value.u = c->action;
    }
    return OK;
}
