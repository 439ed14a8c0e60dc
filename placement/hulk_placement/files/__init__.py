"""The planner's documents: `topology.yaml`, `workload.yaml` and `plan.yaml`, for clusters that need not be one's own.

    text --text--> values --models--> document --reading--> Topology, Workload, Plan --writing--> values --> text

`topology`, `workload`, `plan` and `placement` (with `links.yaml`) are the documents as models, from which the JSON
schemas beside them are made. `hulk_data` turns the Hulk paper's own files into a topology document.
"""
