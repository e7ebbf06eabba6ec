package main

import (
	corev1 "k8s.io/api/core/v1"
	"k8s.io/pod-security-admission/api"
	"k8s.io/pod-security-admission/policy"
)

type podSecurityQuestion struct {
	Level api.Level  `json:"level"`
	Pod   corev1.Pod `json:"pod"`
}

// The checks of the level, and which of them refuse the pod.
type podSecurityAnswer struct {
	Checks  []policy.CheckID `json:"checks"`
	Refused []policy.CheckID `json:"refused"`
}

func newPodSecurity(string) (answerer, error) {
	checks := policy.DefaultChecks()
	overridden := map[policy.CheckID]bool{}
	for _, check := range checks {
		for _, id := range newest(check).OverrideCheckIDs {
			overridden[id] = true
		}
	}
	return answering(func(question podSecurityQuestion) podSecurityAnswer {
		isRestricted := question.Level == api.LevelRestricted
		answer := podSecurityAnswer{Refused: []policy.CheckID{}}
		for _, check := range checks {
			if isRestricted && overridden[check.ID] || !isRestricted && check.Level == api.LevelRestricted {
				continue
			}
			answer.Checks = append(answer.Checks, check.ID)
			pod := &question.Pod
			if !newest(check).CheckPod(&pod.ObjectMeta, &pod.Spec).Allowed {
				answer.Refused = append(answer.Refused, check.ID)
			}
		}
		return answer
	}), nil
}

// newest is the check as it is since its last change.
func newest(check policy.Check) policy.VersionedCheck {
	return check.Versions[len(check.Versions)-1]
}
