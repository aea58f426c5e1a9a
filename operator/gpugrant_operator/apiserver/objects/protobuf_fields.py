"""The protobuf fields of the kinds that the server takes in that form.

Made by hack/lib/protobuf_fields from the Go types of k8s.io/api v0.34.2 and k8s.io/apimachinery v0.34.2 (Apache-2.0);
never edited by hand. Numbers of fields never change, and one that is not here is passed over.
"""

from __future__ import annotations

from typing import NamedTuple


class Field(NamedTuple):
    """The type is a scalar, a message, or "[]" or "{}" before what a list or a map of strings holds."""

    number: int
    name: str
    type: str
    keeps_zero: bool = False
    """True: Go tells an unset field from a zero one, or writes the zero into JSON."""


ROOTS: dict[str, str] = {
    "v1/ConfigMap": "core.ConfigMap",
    "v1/Event": "core.Event",
    "v1/Namespace": "core.Namespace",
    "v1/Secret": "core.Secret",
    "authentication.k8s.io/v1/SelfSubjectReview": "authentication.SelfSubjectReview",
    "authorization.k8s.io/v1/SelfSubjectAccessReview": "authorization.SelfSubjectAccessReview",
    "authorization.k8s.io/v1/SelfSubjectRulesReview": "authorization.SelfSubjectRulesReview",
    "coordination.k8s.io/v1/Lease": "coordination.Lease",
    "events.k8s.io/v1/Event": "events.Event",
    "DeleteOptions": "meta.DeleteOptions",
}
"""`apiVersion/kind`, or the kind alone where any version has it, to its message."""

MESSAGES: dict[str, tuple[Field, ...]] = {
    "authentication.SelfSubjectReview": (
        Field(1, "metadata", "meta.ObjectMeta"),
        Field(2, "status", "authentication.SelfSubjectReviewStatus"),
    ),
    "authentication.SelfSubjectReviewStatus": (Field(1, "userInfo", "authentication.UserInfo"),),
    "authentication.UserInfo": (
        Field(1, "username", "string"),
        Field(2, "uid", "string"),
        Field(3, "groups", "[]string"),
        Field(4, "extra", "{}items"),
    ),
    "authorization.FieldSelectorAttributes": (
        Field(1, "rawSelector", "string"),
        Field(2, "requirements", "[]meta.FieldSelectorRequirement"),
    ),
    "authorization.LabelSelectorAttributes": (
        Field(1, "rawSelector", "string"),
        Field(2, "requirements", "[]meta.LabelSelectorRequirement"),
    ),
    "authorization.NonResourceAttributes": (
        Field(1, "path", "string"),
        Field(2, "verb", "string"),
    ),
    "authorization.NonResourceRule": (
        Field(1, "verbs", "[]string", keeps_zero=True),
        Field(2, "nonResourceURLs", "[]string"),
    ),
    "authorization.ResourceAttributes": (
        Field(1, "namespace", "string"),
        Field(2, "verb", "string"),
        Field(3, "group", "string"),
        Field(4, "version", "string"),
        Field(5, "resource", "string"),
        Field(6, "subresource", "string"),
        Field(7, "name", "string"),
        Field(8, "fieldSelector", "authorization.FieldSelectorAttributes", keeps_zero=True),
        Field(9, "labelSelector", "authorization.LabelSelectorAttributes", keeps_zero=True),
    ),
    "authorization.ResourceRule": (
        Field(1, "verbs", "[]string", keeps_zero=True),
        Field(2, "apiGroups", "[]string"),
        Field(3, "resources", "[]string"),
        Field(4, "resourceNames", "[]string"),
    ),
    "authorization.SelfSubjectAccessReview": (
        Field(1, "metadata", "meta.ObjectMeta"),
        Field(2, "spec", "authorization.SelfSubjectAccessReviewSpec"),
        Field(3, "status", "authorization.SubjectAccessReviewStatus"),
    ),
    "authorization.SelfSubjectAccessReviewSpec": (
        Field(1, "resourceAttributes", "authorization.ResourceAttributes", keeps_zero=True),
        Field(2, "nonResourceAttributes", "authorization.NonResourceAttributes", keeps_zero=True),
    ),
    "authorization.SelfSubjectRulesReview": (
        Field(1, "metadata", "meta.ObjectMeta"),
        Field(2, "spec", "authorization.SelfSubjectRulesReviewSpec"),
        Field(3, "status", "authorization.SubjectRulesReviewStatus"),
    ),
    "authorization.SelfSubjectRulesReviewSpec": (Field(1, "namespace", "string"),),
    "authorization.SubjectAccessReviewStatus": (
        Field(1, "allowed", "bool", keeps_zero=True),
        Field(4, "denied", "bool"),
        Field(2, "reason", "string"),
        Field(3, "evaluationError", "string"),
    ),
    "authorization.SubjectRulesReviewStatus": (
        Field(1, "resourceRules", "[]authorization.ResourceRule", keeps_zero=True),
        Field(2, "nonResourceRules", "[]authorization.NonResourceRule", keeps_zero=True),
        Field(3, "incomplete", "bool", keeps_zero=True),
        Field(4, "evaluationError", "string"),
    ),
    "coordination.Lease": (
        Field(1, "metadata", "meta.ObjectMeta"),
        Field(2, "spec", "coordination.LeaseSpec"),
    ),
    "coordination.LeaseSpec": (
        Field(1, "holderIdentity", "string", keeps_zero=True),
        Field(2, "leaseDurationSeconds", "int32", keeps_zero=True),
        Field(3, "acquireTime", "microtime", keeps_zero=True),
        Field(4, "renewTime", "microtime", keeps_zero=True),
        Field(5, "leaseTransitions", "int32", keeps_zero=True),
        Field(6, "strategy", "string", keeps_zero=True),
        Field(7, "preferredHolder", "string", keeps_zero=True),
    ),
    "core.ConfigMap": (
        Field(1, "metadata", "meta.ObjectMeta"),
        Field(4, "immutable", "bool", keeps_zero=True),
        Field(2, "data", "{}string"),
        Field(3, "binaryData", "{}bytes"),
    ),
    "core.Event": (
        Field(1, "metadata", "meta.ObjectMeta"),
        Field(2, "involvedObject", "core.ObjectReference"),
        Field(3, "reason", "string"),
        Field(4, "message", "string"),
        Field(5, "source", "core.EventSource"),
        Field(6, "firstTimestamp", "time"),
        Field(7, "lastTimestamp", "time"),
        Field(8, "count", "int32"),
        Field(9, "type", "string"),
        Field(10, "eventTime", "microtime"),
        Field(11, "series", "core.EventSeries", keeps_zero=True),
        Field(12, "action", "string"),
        Field(13, "related", "core.ObjectReference", keeps_zero=True),
        Field(14, "reportingComponent", "string", keeps_zero=True),
        Field(15, "reportingInstance", "string", keeps_zero=True),
    ),
    "core.EventSeries": (
        Field(1, "count", "int32"),
        Field(2, "lastObservedTime", "microtime"),
    ),
    "core.EventSource": (
        Field(1, "component", "string"),
        Field(2, "host", "string"),
    ),
    "core.Namespace": (
        Field(1, "metadata", "meta.ObjectMeta"),
        Field(2, "spec", "core.NamespaceSpec"),
        Field(3, "status", "core.NamespaceStatus"),
    ),
    "core.NamespaceCondition": (
        Field(1, "type", "string", keeps_zero=True),
        Field(2, "status", "string", keeps_zero=True),
        Field(4, "lastTransitionTime", "time"),
        Field(5, "reason", "string"),
        Field(6, "message", "string"),
    ),
    "core.NamespaceSpec": (Field(1, "finalizers", "[]string"),),
    "core.NamespaceStatus": (
        Field(1, "phase", "string"),
        Field(2, "conditions", "[]core.NamespaceCondition"),
    ),
    "core.ObjectReference": (
        Field(1, "kind", "string"),
        Field(2, "namespace", "string"),
        Field(3, "name", "string"),
        Field(4, "uid", "string"),
        Field(5, "apiVersion", "string"),
        Field(6, "resourceVersion", "string"),
        Field(7, "fieldPath", "string"),
    ),
    "core.Secret": (
        Field(1, "metadata", "meta.ObjectMeta"),
        Field(5, "immutable", "bool", keeps_zero=True),
        Field(2, "data", "{}bytes"),
        Field(4, "stringData", "{}string"),
        Field(3, "type", "string"),
    ),
    "events.Event": (
        Field(1, "metadata", "meta.ObjectMeta"),
        Field(2, "eventTime", "microtime"),
        Field(3, "series", "events.EventSeries", keeps_zero=True),
        Field(4, "reportingController", "string"),
        Field(5, "reportingInstance", "string"),
        Field(6, "action", "string"),
        Field(7, "reason", "string"),
        Field(8, "regarding", "core.ObjectReference"),
        Field(9, "related", "core.ObjectReference", keeps_zero=True),
        Field(10, "note", "string"),
        Field(11, "type", "string"),
        Field(12, "deprecatedSource", "core.EventSource"),
        Field(13, "deprecatedFirstTimestamp", "time"),
        Field(14, "deprecatedLastTimestamp", "time"),
        Field(15, "deprecatedCount", "int32"),
    ),
    "events.EventSeries": (
        Field(1, "count", "int32", keeps_zero=True),
        Field(2, "lastObservedTime", "microtime"),
    ),
    "meta.DeleteOptions": (
        Field(1, "gracePeriodSeconds", "int64", keeps_zero=True),
        Field(2, "preconditions", "meta.Preconditions", keeps_zero=True),
        Field(3, "orphanDependents", "bool", keeps_zero=True),
        Field(4, "propagationPolicy", "string", keeps_zero=True),
        Field(5, "dryRun", "[]string"),
        Field(6, "ignoreStoreReadErrorWithClusterBreakingPotential", "bool", keeps_zero=True),
    ),
    "meta.FieldSelectorRequirement": (
        Field(1, "key", "string", keeps_zero=True),
        Field(2, "operator", "string", keeps_zero=True),
        Field(3, "values", "[]string"),
    ),
    "meta.LabelSelectorRequirement": (
        Field(1, "key", "string", keeps_zero=True),
        Field(2, "operator", "string", keeps_zero=True),
        Field(3, "values", "[]string"),
    ),
    "meta.ManagedFieldsEntry": (
        Field(1, "manager", "string"),
        Field(2, "operation", "string"),
        Field(3, "apiVersion", "string"),
        Field(4, "time", "time", keeps_zero=True),
        Field(6, "fieldsType", "string"),
        Field(7, "fieldsV1", "json", keeps_zero=True),
        Field(8, "subresource", "string"),
    ),
    "meta.ObjectMeta": (
        Field(1, "name", "string"),
        Field(2, "generateName", "string"),
        Field(3, "namespace", "string"),
        Field(4, "selfLink", "string"),
        Field(5, "uid", "string"),
        Field(6, "resourceVersion", "string"),
        Field(7, "generation", "int64"),
        Field(8, "creationTimestamp", "time"),
        Field(9, "deletionTimestamp", "time", keeps_zero=True),
        Field(10, "deletionGracePeriodSeconds", "int64", keeps_zero=True),
        Field(11, "labels", "{}string"),
        Field(12, "annotations", "{}string"),
        Field(13, "ownerReferences", "[]meta.OwnerReference"),
        Field(14, "finalizers", "[]string"),
        Field(17, "managedFields", "[]meta.ManagedFieldsEntry"),
    ),
    "meta.OwnerReference": (
        Field(5, "apiVersion", "string", keeps_zero=True),
        Field(1, "kind", "string", keeps_zero=True),
        Field(3, "name", "string", keeps_zero=True),
        Field(4, "uid", "string", keeps_zero=True),
        Field(6, "controller", "bool", keeps_zero=True),
        Field(7, "blockOwnerDeletion", "bool", keeps_zero=True),
    ),
    "meta.Preconditions": (
        Field(1, "uid", "string", keeps_zero=True),
        Field(2, "resourceVersion", "string", keeps_zero=True),
    ),
}
