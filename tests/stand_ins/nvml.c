/* A stand-in for libnvidia-ml.so.1 that is one machine: CARDS gives {minor, bus, UUID} of each card. A card is there
 * when its device node can be reached; no driver is behind the node, so a granted one says "No such device or address".
 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { SUCCESS = 0, INVALID_ARGUMENT = 2, NOT_SUPPORTED = 3, NOT_FOUND = 6 };

typedef struct {
    unsigned minor, bus;
    const char *uuid;
} card_t;

typedef struct {
    char legacy[16];
    unsigned domain, bus, device, ids, subsystem;
    char text[32];
} pci_t;

typedef struct {
    unsigned long long total, free, used;
} memory_t;

static const card_t cards[] = {CARDS};
enum { COUNT = sizeof cards / sizeof *cards };

static int reachable(const card_t *card) {
    const char *tree = getenv("GPUGRANT_HARDWARE");
    char path[512];
    int handle;
    snprintf(path, sizeof path, "%s/dev/nvidia%u", tree ? tree : "", card->minor);
    handle = open(path, O_RDWR);
    if (handle >= 0) close(handle);
    return handle >= 0 || errno == ENXIO;
}

static int say(char *out, unsigned size, const char *text) {
    if (strlen(text) >= size) return INVALID_ARGUMENT;
    strcpy(out, text);
    return SUCCESS;
}

/* MOCK_NVML_FAULT: the code with which the library can't be used, such as 9 (driver not loaded). */
int nvmlInit_v2(void) {
    const char *fault = getenv("MOCK_NVML_FAULT");
    return fault ? atoi(fault) : SUCCESS;
}
int nvmlInitWithFlags(unsigned flags) {
    (void)flags;
    return nvmlInit_v2();
}
int nvmlShutdown(void) { return SUCCESS; }

const char *nvmlErrorString(int code) {
    switch (code) {
    case 9: return "Driver Not Loaded";
    case 18: return "Driver/library version mismatch";
    default: return "Not Supported";
    }
}

int nvmlSystemGetDriverVersion(char *out, unsigned size) { return say(out, size, VERSION); }
int nvmlSystemGetCudaDriverVersion(int *out) {
    *out = 13000;
    return SUCCESS;
}
int nvmlSystemGetCudaDriverVersion_v2(int *out) { return nvmlSystemGetCudaDriverVersion(out); }

int nvmlDeviceGetCount_v2(unsigned *out) {
    *out = 0;
    for (int i = 0; i < COUNT; i++) *out += reachable(&cards[i]);
    return SUCCESS;
}
int nvmlDeviceGetHandleByIndex_v2(unsigned index, const card_t **out) {
    for (int i = 0; i < COUNT; i++) {
        if (reachable(&cards[i]) && index-- == 0) {
            *out = &cards[i];
            return SUCCESS;
        }
    }
    return NOT_FOUND;
}
int nvmlDeviceGetHandleByUUID(const char *uuid, const card_t **out) {
    for (int i = 0; i < COUNT; i++) {
        if (!strcmp(cards[i].uuid, uuid)) {
            *out = &cards[i];
            return SUCCESS;
        }
    }
    return NOT_FOUND;
}
int nvmlDeviceGetIndex(const card_t *card, unsigned *out) {
    *out = 0;
    for (const card_t *other = cards; other < card; other++) *out += reachable(other);
    return SUCCESS;
}
int nvmlDeviceGetUUID(const card_t *card, char *out, unsigned size) { return say(out, size, card->uuid); }
int nvmlDeviceGetName(const card_t *card, char *out, unsigned size) {
    (void)card;
    return say(out, size, "NVIDIA L40S");
}
int nvmlDeviceGetMinorNumber(const card_t *card, unsigned *out) {
    *out = card->minor;
    return SUCCESS;
}
int nvmlDeviceGetPciInfo_v3(const card_t *card, pci_t *out) {
    memset(out, 0, sizeof *out);
    snprintf(out->legacy, sizeof out->legacy, "0000:%02X:00.0", card->bus);
    snprintf(out->text, sizeof out->text, "00000000:%02X:00.0", card->bus);
    out->bus = card->bus;
    out->ids = 0x26b910de;
    return SUCCESS;
}
int nvmlDeviceGetMemoryInfo(const card_t *card, memory_t *out) {
    (void)card;
    *out = (memory_t){46068ull << 20, 46068ull << 20, 0};
    return SUCCESS;
}
int nvmlDeviceGetMigMode(const card_t *card, unsigned *current, unsigned *pending) {
    (void)card, (void)current, (void)pending;
    return NOT_SUPPORTED;
}
int nvmlDeviceGetMaxMigDeviceCount(const card_t *card, unsigned *out) {
    (void)card;
    *out = 0;
    return SUCCESS;
}
int nvmlDeviceIsMigDeviceHandle(const card_t *card, unsigned *out) {
    (void)card;
    *out = 0;
    return SUCCESS;
}
