{{- define "nri-cpu-manager.name" -}}
{{ .Values.fullnameOverride | default .Chart.Name }}
{{- end }}

{{- define "nri-cpu-manager.image" -}}
{{- with .Values.image -}}
{{ .repository }}{{ if .digest }}@{{ .digest }}{{ else }}:{{ .tag | default $.Chart.AppVersion }}{{ end }}
{{- end }}
{{- end }}

{{/* What every container of the plugin's image has: image, resources, and root without capabilities. */}}
{{- define "nri-cpu-manager.container" -}}
image: {{ include "nri-cpu-manager.image" . }}
{{- with .Values.image.pullPolicy }}
imagePullPolicy: {{ . }}
{{- end }}
{{- with .Values.resources }}
resources:
  {{- toYaml . | nindent 2 }}
{{- end }}
securityContext:
  runAsUser: 0
  allowPrivilegeEscalation: false
  readOnlyRootFilesystem: true
  capabilities:
    drop: ["ALL"]
    {{- with .added }}
    add: {{ toJson . }}
    {{- end }}
  seccompProfile:
    type: RuntimeDefault
  {{- with .Values.seLinuxOptions }}
  seLinuxOptions:
    {{- toYaml . | nindent 4 }}
  {{- end }}
{{- end }}

{{/* Empty for the namespace's default account. */}}
{{- define "nri-cpu-manager.serviceAccount" -}}
{{- with .Values.serviceAccount -}}
{{ .name | default (ternary (include "nri-cpu-manager.name" $) "" .create) }}
{{- end }}
{{- end }}

{{/* What every pod has: where it runs, and as whom. */}}
{{- define "nri-cpu-manager.pod" -}}
enableServiceLinks: false
{{- with include "nri-cpu-manager.serviceAccount" . }}
serviceAccountName: {{ . }}
{{- end }}
automountServiceAccountToken: false
{{- with .Values.priorityClassName }}
priorityClassName: {{ . }}
{{- end }}
{{- with .Values.imagePullSecrets }}
imagePullSecrets:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .Values.tolerations }}
tolerations:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .Values.nodeSelector }}
nodeSelector:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .Values.affinity }}
affinity:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- end }}

{{/* "true" if any node asks the kubelet's podresources. */}}
{{- define "nri-cpu-manager.podResources" -}}
{{- if or .Values.podResources .Values.devices }}true{{ end }}
{{- range concat (list .Values.config) (.Values.config.nodes | default list) }}
{{- if .podResources }}true{{ end }}
{{- end }}
{{- end }}

{{/* Fails with advice where the API server would accept what cannot work. */}}
{{- define "nri-cpu-manager.check" -}}
{{- $entries := .Values.config.nodes | default list }}
{{- range prepend $entries .Values.config }}
{{- if and (eq (toString .exclusivity) "kernel") (not $.Values.kernelExclusivity) }}
{{- fail "config: exclusivity: kernel needs privileges, or the plugin does not start. Set kernelExclusivity: true" }}
{{- end }}
{{- $quiet := list (pick . "interrupts") }}
{{- range .namespaces }}
{{- $quiet = pick (.defaults | default dict) "interrupts" "c-states" "frequency-governor" "min-frequency" "max-frequency" | append $quiet }}
{{- end }}
{{- range $quiet }}
{{- range $name, $value := . }}
{{- if and (ne (toString $value) "leave") (not $.Values.quiet) }}
{{- fail (printf "config: %s: %v needs files of the host, or nothing is set. Set quiet: true" $name $value) }}
{{- end }}
{{- end }}
{{- end }}
{{- end }}
{{- /* The file alone, and with each entry of nodes. */}}
{{- range $at, $entry := prepend $entries dict }}
{{- $config := omit $.Values.config "nodes" | deepCopy }}
{{- if ne ($entry.cpuManagerPolicy | default "static") "static" }}
{{- $config = omit $config "cpuManagerPolicyOptions" "podLevelResources" }}
{{- end }}
{{- $others := dict }}
{{- range $i, $other := prepend $entries dict }}
{{- if ne $i $at }}{{ $others = merge $others $other }}{{ end }}
{{- end }}
{{- include "nri-cpu-manager.contradictions" (list (mergeOverwrite $config $entry) $others) }}
{{- end }}
{{- with .Values.updateStrategy }}
{{- /* With Kubernetes' defaults, for a value that was set to null. "0%" is 0. */}}
{{- $rolling := .rollingUpdate | default dict }}
{{- $surges := dig "maxSurge" 0 $rolling | toString | trimSuffix "%" | ne "0" }}
{{- $unavailable := dig "maxUnavailable" 1 $rolling | toString | trimSuffix "%" | ne "0" }}
{{- if and (eq .type "RollingUpdate") (eq $surges $unavailable) }}
{{- fail "updateStrategy: exactly one of maxSurge and maxUnavailable must be 0" }}
{{- end }}
{{- end }}
{{- $uninstall := printf "%s-uninstall" (include "nri-cpu-manager.name" .) }}
{{- if lookup "apps/v1" "DaemonSet" .Release.Namespace $uninstall }}
{{- $advice := printf "Delete it first: kubectl -n %s delete daemonset %s" .Release.Namespace $uninstall }}
{{- fail (printf "daemonset/%s of an earlier uninstall would revert the plugin's work. %s" $uninstall $advice) }}
{{- end }}
{{- end }}

{{/* Fails if fields of a configuration contradict each other on every machine, which only a node would show otherwise.
A copy of those of the plugin's rules: tests/chart/contradictions.yaml has each, and tests compare both. Arguments: the
configuration, and what nodes can get from other entries, about which only the plugin can decide. */}}
{{- define "nri-cpu-manager.contradictions" -}}
{{- $others := last . }}
{{- with first . }}
{{- $on := list }}
{{- range $name, $value := .cpuManagerPolicyOptions }}
{{- if eq (toString $value) "true" }}{{ $on = append $on $name }}{{ end }}
{{- end }}
{{- $numa := has "distribute-cpus-across-numa" $on }}
{{- $cores := has "distribute-cpus-across-cores" $on }}
{{- $uncore := has "prefer-align-cpus-by-uncorecache" $on }}
{{- $socket := has "align-by-socket" $on }}
{{- $static := eq (toString .cpuManagerPolicy) "static" }}
{{- $compact := and $static (eq (toString .placement) "compact") }}
{{- $manager := .topologyManagerPolicy | default "none" }}
{{- $ownPool := eq (toString .podLevelResources) "own-pool" }}
{{- $pods := and (eq (toString .topologyManagerScope) "pod") (ne $manager "none") }}
{{- $amounts := list (dig "cpu" 0 (.systemReserved | default dict)) (dig "cpu" 0 (.kubeReserved | default dict)) }}
{{- $reserved := or (hasKey . "reservedSystemCPUs") (regexMatch "[1-9]" (toString $amounts)) }}
{{- $inNamespaces := false }}
{{- range .namespaces }}{{ if eq (toString .cpuManagerPolicy) "static" }}{{ $inNamespaces = true }}{{ end }}{{ end }}
{{- /* What is wrong, how, and the fields by which. */}}
{{- range list
  (list (and $uncore $numa) "prefer-align-cpus-by-uncorecache, on by default, contradicts distribute-cpus-across-numa: set one to \"false\""
    "cpuManagerPolicyOptions")
  (list (and $uncore $cores) "prefer-align-cpus-by-uncorecache, on by default, contradicts distribute-cpus-across-cores: set one to \"false\""
    "cpuManagerPolicyOptions")
  (list (and $numa $cores) "distribute-cpus-across-numa contradicts distribute-cpus-across-cores: set one to \"false\""
    "cpuManagerPolicyOptions")
  (list (and (has "full-pcpus-only" $on) $cores) "full-pcpus-only contradicts distribute-cpus-across-cores: set one to \"false\""
    "cpuManagerPolicyOptions")
  (list (and $static $socket (eq $manager "single-numa-node")) "align-by-socket contradicts topologyManagerPolicy: single-numa-node"
    "cpuManagerPolicyOptions" "topologyManagerPolicy")
  (list (and (not $static) .cpuManagerPolicyOptions) "options need cpuManagerPolicy: static. Remove the default ones with null"
    "cpuManagerPolicyOptions" "cpuManagerPolicy")
  (list (and $static (not $reserved)) "static needs reserved CPUs: set reservedSystemCPUs, or systemReserved: {cpu: ...}"
    "cpuManagerPolicy" "reservedSystemCPUs" "systemReserved" "kubeReserved")
  (list (and $compact (or $numa $cores $socket)) "compact contradicts distribute-cpus-across-numa, -across-cores and align-by-socket"
    "placement" "cpuManagerPolicyOptions")
  (list (and $compact (eq (toString .uncoreCacheOrder) "numerical")) "numerical contradicts placement: compact"
    "uncoreCacheOrder" "placement")
  (list (and $ownPool (not (and $static $pods))) "own-pool needs cpuManagerPolicy: static, topologyManagerScope: pod and a topologyManagerPolicy"
    "podLevelResources" "cpuManagerPolicy" "topologyManagerScope" "topologyManagerPolicy")
  (list (and $inNamespaces (not $static)) "static needs cpuManagerPolicy: static of the node, and none for {names: [\"*\"]}"
    "namespaces" "cpuManagerPolicy")
  (list (and (int .noticeSeconds) (ne (toString .exposeCPUs) "file")) "a notice needs exposeCPUs: file"
    "noticeSeconds" "exposeCPUs")
  (list (and (hasKey . "memoryOnlyNodes") (ne (toString .exclusiveMemoryNodes) "follow-cpus")) "a list needs exclusiveMemoryNodes: follow-cpus"
    "memoryOnlyNodes" "exclusiveMemoryNodes")
  (list (and (eq (toString .memoryManagerPolicy) "Static") (empty .reservedMemory)) "Static needs reservedMemory"
    "memoryManagerPolicy" "reservedMemory")
}}
{{- $fields := slice . 2 }}
{{- $open := false }}
{{- range $fields }}{{ if hasKey $others . }}{{ $open = true }}{{ end }}{{ end }}
{{- if and (first .) (not $open) }}
{{- fail (printf "config.%s: %s" (first $fields) (index . 1)) }}
{{- end }}
{{- end }}
{{- end }}
{{- end }}
