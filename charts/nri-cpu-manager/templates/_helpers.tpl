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
{{- range concat (list .Values.config) (.Values.config.nodes | default list) }}
{{- if and (eq (toString .exclusivity) "kernel") (not $.Values.kernelExclusivity) }}
{{- fail "config: exclusivity: kernel needs privileges, or the plugin does not start. Set kernelExclusivity: true" }}
{{- end }}
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
